import Foundation

/// Finds the folder `Model` with the package's weights, tokenizer and configuration.
///
/// Looks in these places, in this order, and takes the first with a `config.json`. Each of
/// several models has a folder of its own there, in which it is looked for:
/// 1. the folder that the environment variable `H2O_MODEL_DIR` names;
/// 2. `Model` in the app's main bundle: add the package's `Model` folder to the app
///    target as a folder reference, because a Swift package can only contain resources from
///    inside a target's folder;
/// 3. `Model` next to `Sources`, in builds that run where they were compiled;
/// 4. the folder to which ``ModelDownload`` fetched it.
public enum ModelFolder {
    /// - Parameter name: the folder in `Model` of one of several models, "" for the only one
    /// - Throws: ``H2OLoadingError/notFound(searched:)``
    public static func find(_ name: String = "") throws -> URL {
        let places = [fromEnvironment, fromBundle, fromSources, ModelDownload.fetched()]
            .compactMap { $0 }
        let candidates = places.map { place in
            name.isEmpty ? place : place.appending(path: name, directoryHint: .isDirectory)
        }
        let isModel = { (folder: URL) in
            FileManager.default.fileExists(atPath: folder.appending(path: "config.json").path)
        }
        guard let folder = candidates.first(where: isModel) else {
            throw H2OLoadingError.notFound(searched: candidates)
        }
        return folder
    }

    private static var fromEnvironment: URL? {
        ProcessInfo.processInfo.environment["H2O_MODEL_DIR"].map {
            URL(filePath: $0, directoryHint: .isDirectory)
        }
    }

    private static var fromBundle: URL? {
        Bundle.main.resourceURL?.appending(path: "Model", directoryHint: .isDirectory)
    }

    private static var fromSources: URL? {
        URL(filePath: #filePath).appending(path: "../../../Model", directoryHint: .isDirectory)
            .standardized
    }
}
