import Foundation

#if canImport(Metal)
    import MachO
#endif

/// Checks for MLX's compiled kernels before MLX is used. Without them MLX ends the process
/// instead of throwing an error.
package struct MetalCheck: Sendable {
    private let folders: @Sendable () -> [URL]?

    /// - Parameter folders: the folders to search; nil if MLX needs no kernels
    package init(folders: @escaping @Sendable () -> [URL]?) {
        self.folders = folders
    }

    /// - Throws: ``H2OLoadingError/noMetalLibrary(searched:)``
    package func check() throws {
        guard let folders = folders() else { return }
        guard Self.library(in: folders) != nil else {
            throw H2OLoadingError.noMetalLibrary(
                searched: Set(folders).sorted { $0.path < $1.path })
        }
    }

    /// Places in a folder where MLX looks for its kernels: next to a binary, in SwiftPM's
    /// bundle for Cmlx (in the layouts of iOS and macOS), or in a framework.
    private static let places = [
        "mlx.metallib", "Resources/mlx.metallib",
        "mlx-swift_Cmlx.bundle/default.metallib",
        "mlx-swift_Cmlx.bundle/Contents/Resources/default.metallib",
        "default.metallib", "Resources/default.metallib",
    ]

    /// Returns the first library that is not empty.
    private static func library(in folders: [URL]) -> URL? {
        folders.lazy.flatMap { folder in places.map { folder.appending(path: $0) } }
            .first { size(of: $0) > 0 }
    }

    private static func size(of file: URL) -> Int {
        let attributes = try? FileManager.default.attributesOfItem(atPath: file.path)
        return (attributes?[.size] as? NSNumber)?.intValue ?? 0
    }
}

extension MetalCheck {
    /// The check of this process. It searches more places than MLX does, so that it never
    /// refuses an app that would run. In a simulator it logs that MLX runs on the CPU.
    package static let system: MetalCheck = {
        #if targetEnvironment(simulator)
            MetalCheck {
                H2OWarning.simulator
                return nil
            }
        #elseif canImport(Metal)
            MetalCheck { bundleFolders + binaryFolders + [URL(filePath: ".")] }
        #else
            MetalCheck { nil }
        #endif
    }()

    #if canImport(Metal)
        private static var bundleFolders: [URL] {
            ([Bundle.main] + Bundle.allBundles + Bundle.allFrameworks)
                .filter { !isSystem($0.bundlePath) }
                .flatMap { [$0.bundleURL, $0.resourceURL].compactMap { $0 } }
        }

        /// The folders of all binaries of this process except the system's.
        private static var binaryFolders: [URL] {
            (0 ..< _dyld_image_count())
                .compactMap { _dyld_get_image_name($0).map { String(cString: $0) } }
                .filter { !isSystem($0) }
                .map { URL(filePath: $0).deletingLastPathComponent() }
        }

        private static func isSystem(_ path: String) -> Bool {
            path.hasPrefix("/System/") || path.hasPrefix("/usr/lib/")
        }
    #endif
}
