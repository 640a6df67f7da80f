import Foundation

/// Checks whether MLX can start, before it is used. Without its compiled kernels MLX ends the
/// process instead of throwing.
package struct MetalCheck: Sendable {
    private let folders: @Sendable () -> [URL]?

    /// - Parameter folders: where the kernels may be; nil if MLX needs none
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

    /// Where MLX finds its kernels in a folder: next to a binary, in SwiftPM's bundle for Cmlx
    /// (in the layouts of iOS and macOS), or in a framework.
    private static let places = [
        "mlx.metallib", "Resources/mlx.metallib",
        "mlx-swift_Cmlx.bundle/default.metallib",
        "mlx-swift_Cmlx.bundle/Contents/Resources/default.metallib",
        "default.metallib", "Resources/default.metallib",
    ]

    /// The first library that is not empty.
    private static func library(in folders: [URL]) -> URL? {
        folders.lazy.flatMap { folder in places.map { folder.appending(path: $0) } }
            .first { size(of: $0) > 0 }
    }

    private static func size(of file: URL) -> Int {
        let attributes = try? FileManager.default.attributesOfItem(atPath: file.path)
        return (attributes?[.size] as? NSNumber)?.intValue ?? 0
    }
}
