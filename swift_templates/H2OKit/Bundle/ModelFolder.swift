import Foundation

/// Finds the folder `Model` with the package's weights, tokenizer and configuration.
///
/// Searches these places in this order, and returns the first with a `config.json`. In a
/// package of several models, each has its own folder in these places:
/// 1. the folder that the environment variable `H2O_MODEL_DIR` names;
/// 2. `Model` in the app's main bundle: add the package's `Model` folder to the app
///    target as a folder reference, because a Swift package can only contain resources from
///    inside a target's folder;
/// 3. `Model` next to `Sources`, in debug builds that run where they were compiled;
/// 4. the folder `fetched` that the caller passes.
package enum ModelFolder {
    /// - Parameters:
    ///   - name: the model's folder in `Model` of a package with several models; "" for a
    ///     single model
    ///   - fetched: the folder to which the model was downloaded; nil if it was not
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

    static func hasModel(_ folder: URL) -> Bool {
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

    /// Only in debug builds, so that a release contains no path of the developer's machine.
    private static var fromSources: URL? {
        #if DEBUG
            // This file is in Sources/H2OKit/Bundle.
            URL(filePath: #filePath)
                .appending(path: "../../../../Model", directoryHint: .isDirectory).standardized
        #else
            nil
        #endif
    }
}

extension URL {
    /// Excludes a folder from backups.
    ///
    /// - Throws: an error of the file system
    package func excludeFromBackup() throws {
        var (excluded, values) = (self, URLResourceValues())
        values.isExcludedFromBackup = true
        try excluded.setResourceValues(values)
    }
}
