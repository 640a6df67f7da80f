import Foundation

#if canImport(BackgroundAssets) && compiler(>=6.2)
    import BackgroundAssets
    import System
#endif

extension ModelFolder {
    /// Finds the folder as ``find()`` does. If it is not there, finds it in an asset pack, which the
    /// system downloads if the device does not have it yet. Needs iOS 26.
    ///
    /// - Parameter id: the `assetPackID` of the package's `AssetPack/Manifest.json`
    /// - Throws: ``H2OLoadingError``, or an error of Background Assets
    package static func find(assetPack id: String) async throws -> URL {
        if let folder = try? find() { return folder }
        // Background Assets ends the process of an app that does not declare its asset packs.
        guard Bundle.main.object(forInfoDictionaryKey: "BAHasManagedAssetPacks") != nil else {
            throw H2OLoadingError.assetPackNotDeclared(id: id)
        }
        #if canImport(BackgroundAssets) && compiler(>=6.2)
            if #available(iOS 26, macOS 26, *) {
                let manager = AssetPackManager.shared
                // Looks on the device first, because a request for the pack may use the network
                // even if the pack is there.
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

    /// Yields the share of an asset pack that has arrived, from 0 to 1, during its download.
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
