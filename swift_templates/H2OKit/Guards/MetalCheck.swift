import Foundation

/// Checks whether MLX can start, before it is used. Without its compiled kernels MLX ends the
/// process instead of throwing.
public struct MetalCheck: Sendable {
    private let folders: @Sendable () -> [URL]?

    /// - Parameter folders: where the kernels may be; nil if MLX needs none
    public init(folders: @escaping @Sendable () -> [URL]?) {
        self.folders = folders
    }

    /// - Throws: ``MetalError``
    public func check() throws {
        guard let folders = folders() else { return }
        guard Self.library(in: folders) != nil else {
            throw MetalError.noLibrary(Set(folders).sorted { $0.path < $1.path })
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

/// Why MLX cannot start here.
public enum MetalError: LocalizedError, Hashable, Sendable {
    /// None of these folders contains MLX's compiled kernels.
    case noLibrary([URL])

    public var errorDescription: String? {
        switch self {
        case .noLibrary(let folders):
            "The app has no compiled Metal kernels: there is no default.metallib in "
                + "mlx-swift_Cmlx.bundle, looked for in "
                + folders.map(\.path).joined(separator: ", ")
                + ". `swift build` makes none: build with Xcode or xcodebuild, and if Xcode "
                + "lacks its Metal compiler, run `xcodebuild -downloadComponent MetalToolchain`."
        }
    }
}
