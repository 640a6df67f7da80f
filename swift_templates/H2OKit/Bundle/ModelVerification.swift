import Foundation

/// How thoroughly a model folder is compared with its manifest.
public enum ModelVerification: Hashable, Sendable {
    /// Names and sizes. No file is read, so this takes milliseconds.
    case sizes
    /// Names, sizes and the sha256 of every file, which takes seconds per gigabyte.
    case full

    /// Compares a folder with its manifest and collects all differences.
    ///
    /// - Parameter folder: contains the model's files and `manifest.json`
    /// - Returns: the manifest
    /// - Throws: ``H2OLoadingError``
    @discardableResult
    package func check(_ folder: URL) throws -> ModelManifest {
        let manifest = try ModelManifest.read(in: folder)
        let problems =
            manifest.files.compactMap { problem(with: $0, in: folder) }
            + strays(in: folder, besides: manifest)
        guard problems.isEmpty else { throw H2OLoadingError.damaged(folder, problems) }
        return manifest
    }

    private func problem(
        with file: ModelManifest.File, in folder: URL
    ) -> H2OLoadingError.FileProblem? {
        guard file.isInside else { return .outside(path: file.path) }
        let url = folder.appending(path: file.path).resolvingSymlinksInPath()
        let attributes = try? FileManager.default.attributesOfItem(atPath: url.path)
        guard let attributes, attributes[.type] as? FileAttributeType == .typeRegular else {
            return .missing(path: file.path)
        }
        let size = (attributes[.size] as? NSNumber)?.intValue ?? 0
        guard size == file.size else {
            return .size(path: file.path, expected: file.size, found: size)
        }
        guard self == .full else { return nil }
        guard let digest = try? FileDigest.sha256(of: url) else {
            return .missing(path: file.path)
        }
        return digest == file.sha256 ? nil : .content(path: file.path)
    }

    /// Weights files that the manifest does not list: mlx-swift-lm loads every one it finds.
    private func strays(
        in folder: URL, besides manifest: ModelManifest
    ) -> [H2OLoadingError.FileProblem] {
        let known = Set(manifest.files.map(\.path))
        let found = FileManager.default.enumerator(atPath: folder.path)?.allObjects ?? []
        return found.compactMap { $0 as? String }
            .filter { $0.hasSuffix(".safetensors") && !known.contains($0) }
            .sorted()
            .map { .stray(path: $0) }
    }
}
