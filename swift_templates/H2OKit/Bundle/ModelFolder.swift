import Foundation

#if canImport(BackgroundAssets) && compiler(>=6.2)
    import BackgroundAssets
    import System
#endif

/// Finds the folder `Model` with the package's weights, tokenizer and configuration.
///
/// Looks in these places, in this order, and takes the first with a `config.json`. Each of
/// several models has a folder of its own there, in which it is looked for:
/// 1. the folder that the environment variable `H2O_MODEL_DIR` names;
/// 2. `Model` in the app's main bundle: add the package's `Model` folder to the app
///    target as a folder reference, because a Swift package can only contain resources from
///    inside a target's folder;
/// 3. `Model` next to `Sources`, in builds that run where they were compiled;
/// 4. where the caller says.
package enum ModelFolder {
    /// - Parameters:
    ///   - name: the folder in `Model` of one of several models, "" for the only one
    ///   - fetched: the folder to which the model was fetched; nil if it was not
    /// - Throws: ``H2OLoadingError/notFound(searched:)``
    package static func find(_ name: String = "", fetched: URL? = nil) throws -> URL {
        let places = [fromEnvironment, fromBundle, fromSources, fetched].compactMap { $0 }
        let candidates = places.map { place in
            name.isEmpty ? place : place.appending(path: name, directoryHint: .isDirectory)
        }
        guard let folder = candidates.first(where: hasModel) else {
            throw H2OLoadingError.notFound(searched: candidates)
        }
        return folder
    }

    private static func hasModel(_ folder: URL) -> Bool {
        FileManager.default.fileExists(atPath: folder.appending(path: "config.json").path)
    }

    private static var fromEnvironment: URL? {
        ProcessInfo.processInfo.environment["H2O_MODEL_DIR"].map {
            URL(filePath: $0, directoryHint: .isDirectory)
        }
    }

    private static var fromBundle: URL? {
        Bundle.main.resourceURL?.appending(path: "Model", directoryHint: .isDirectory)
    }

    /// Only in debug builds: others have no path of the developer's machine in them.
    private static var fromSources: URL? {
        #if DEBUG
            URL(filePath: #filePath).appending(path: "../../../Model", directoryHint: .isDirectory)
                .standardized
        #else
            nil
        #endif
    }
}

extension ModelFolder {
    /// Finds the folder as ``find()`` does. If there is none, looks in an asset pack, which is
    /// downloaded if the device does not have it yet. Needs iOS 26.
    ///
    /// - Parameter id: the `assetPackID` of the package's `AssetPack/Manifest.json`
    /// - Throws: ``H2OLoadingError``, or an error of Background Assets
    package static func find(assetPack id: String) async throws -> URL {
        if let folder = try? find() { return folder }
        // Background Assets ends the process of an app that has not declared its packs.
        guard Bundle.main.object(forInfoDictionaryKey: "BAHasManagedAssetPacks") != nil else {
            throw H2OLoadingError.assetPackNotDeclared(id: id)
        }
        #if canImport(BackgroundAssets) && compiler(>=6.2)
            if #available(iOS 26, macOS 26, *) {
                let manager = AssetPackManager.shared
                // A pack that is here needs no network, which asking for it may.
                if let folder = try? manager.url(for: FilePath("Model")), hasModel(folder) {
                    return folder
                }
                let pack = try await manager.assetPack(withID: id)
                try await manager.ensureLocalAvailability(of: pack)
                return try manager.url(for: FilePath("Model"))
            }
        #endif
        throw H2OLoadingError.assetPackUnsupported(id: id)
    }

    /// The shares of an asset pack that have arrived, while it is downloaded.
    package static func shares(ofAssetPack id: String) -> AsyncStream<Double> {
        AsyncStream { continuation in
            #if canImport(BackgroundAssets) && compiler(>=6.2)
                if #available(iOS 26, macOS 26, *) {
                    let updates = AssetPackManager.shared.statusUpdates(forAssetPackWithID: id)
                    let task = Task {
                        for await update in updates {
                            guard case .downloading(_, let progress) = update else { continue }
                            continuation.yield(progress.fractionCompleted)
                        }
                        continuation.finish()
                    }
                    continuation.onTermination = { _ in task.cancel() }
                    return
                }
            #endif
            continuation.finish()
        }
    }
}

extension URL {
    /// Leaves a folder out of backups.
    ///
    /// - Throws: an error of the file system
    package func excludeFromBackup() throws {
        var (excluded, values) = (self, URLResourceValues())
        values.isExcludedFromBackup = true
        try excluded.setResourceValues(values)
    }
}
