import Foundation

#if canImport(FoundationNetworking)
    import FoundationNetworking
#endif

extension ModelDownload {
    /// What a download asks of its surroundings.
    package struct Settings: Sendable {
        /// The manifest that the app contains; nil if there is none.
        var manifest: @Sendable () -> Data? = {
            Bundle.main.url(forResource: ModelManifest.fileName, withExtension: nil)
                .flatMap { try? Data(contentsOf: $0) }
        }
        /// The folder for models.
        var root = Settings.applicationSupport.appending(
            path: "h2o-models", directoryHint: .isDirectory)
        /// How many pieces are asked for at a time. All of them where the system fetches them
        /// while the app does not run and could not ask for more.
        var piecesAtOnce: Int
        var configuration: @Sendable () -> URLSessionConfiguration
        /// Bytes that may be written to the disk of a folder; nil if the system does not say.
        var freeBytes: @Sendable (URL) -> Int? = Settings.freeBytes

        init() {
            #if canImport(Darwin)
                piecesAtOnce = .max
                configuration = {
                    let made = URLSessionConfiguration.background(
                        withIdentifier: ModelDownload.sessionIdentifier)
                    made.urlCache = nil
                    return made
                }
            #else
                piecesAtOnce = 1
                configuration = Settings.inProcess
            #endif
        }

        /// For a download that ends with its process.
        package init(
            manifest: Data, root: URL,
            freeBytes: @escaping @Sendable (URL) -> Int? = Settings.freeBytes
        ) {
            self.manifest = { manifest }
            (self.root, self.freeBytes) = (root, freeBytes)
            (piecesAtOnce, configuration) = (1, Settings.inProcess)
        }

        func store() throws -> DownloadStore {
            guard let data = manifest() else {
                throw H2OLoadingError.noManifest(in: Bundle.main.bundleURL)
            }
            return try DownloadStore(manifest: data, root: root)
        }

        private static var applicationSupport: URL {
            let files = FileManager.default
            return files.urls(for: .applicationSupportDirectory, in: .userDomainMask).first
                ?? files.temporaryDirectory
        }

        @Sendable private static func inProcess() -> URLSessionConfiguration {
            let made = URLSessionConfiguration.default
            made.urlCache = nil
            return made
        }

        @Sendable package static func freeBytes(at folder: URL) -> Int? {
            #if canImport(Darwin)
                let key = URLResourceKey.volumeAvailableCapacityForImportantUsageKey
                return try? folder.resourceValues(forKeys: [key])
                    .volumeAvailableCapacityForImportantUsage.map(Int.init)
            #else
                let found = try? FileManager.default.attributesOfFileSystem(
                    forPath: folder.path)
                return (found?[.systemFreeSize] as? NSNumber)?.intValue
            #endif
        }
    }
}
