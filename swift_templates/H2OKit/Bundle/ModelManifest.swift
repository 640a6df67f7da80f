import Foundation

/// The list of a model folder's files, `manifest.json`, which `h2o-pack` writes when it bundles
/// the model.
package struct ModelManifest: Codable, Hashable, Sendable {
    /// The format that this version reads.
    package static let format = 1
    package static let fileName = "manifest.json"

    package struct File: Codable, Hashable, Sendable {
        /// Relative to the folder.
        package let path: String
        /// Bytes.
        package let size: Int
        /// 64 lowercase hexadecimal digits.
        package let sha256: String
        /// The sha256 of each piece of ``ModelManifest/pieceSize`` bytes; the last piece may be
        /// shorter. nil if the model is in the app.
        package let pieces: [String]?

        /// Whether the path stays inside the folder.
        var isInside: Bool {
            let parts = path.split(separator: "/", omittingEmptySubsequences: false)
            return !parts.contains { ["", ".", ".."].contains($0) }
        }
    }

    package let format: Int
    /// The model's hub id, short name or folder name.
    package let model: String
    package let files: [File]
    /// The sha256 of weights, configuration and tokenizer, as 64 lowercase hexadecimal digits.
    /// It identifies the model, because caches of one model cannot be used with another. nil in
    /// a manifest of an earlier version.
    package let digest: String?
    /// Size in bytes of the pieces in which a model is downloaded if it is not in the app.
    package let pieceSize: Int?

    private enum CodingKeys: String, CodingKey {
        case format, model, files, digest
        case pieceSize = "piece_size"
    }

    /// - Throws: ``H2OLoadingError``
    package static func read(in folder: URL) throws -> ModelManifest {
        let url = folder.appending(path: fileName)
        let data: Data
        do {
            data = try Data(contentsOf: url)
        } catch {
            throw H2OLoadingError.noManifest(in: folder)
        }
        return try decode(data)
    }

    /// - Throws: ``H2OLoadingError``
    package static func decode(_ data: Data) throws -> ModelManifest {
        guard let manifest = try? JSONDecoder().decode(Self.self, from: data) else {
            throw H2OLoadingError.otherManifest(format: nil)
        }
        guard manifest.format == format else {
            throw H2OLoadingError.otherManifest(format: manifest.format)
        }
        return manifest
    }
}

/// How thoroughly a model folder is compared with its manifest.
package enum ModelVerification: Hashable, Sendable {
    /// Compares names and sizes. No file is read, so this takes milliseconds.
    case sizes
    /// Compares names, sizes and the sha256 of every file, which takes seconds per gigabyte.
    case full

    /// Compares a folder with its manifest and collects all differences.
    ///
    /// - Parameter folder: contains the model's files and `manifest.json`
    /// - Returns: the manifest
    /// - Throws: ``H2OLoadingError``
    @discardableResult
    package func check(_ folder: URL) throws -> ModelManifest {
        let manifest = try ModelManifest.read(in: folder)
        let differences =
            manifest.files.compactMap { difference(of: $0, in: folder) }
            + strays(in: folder, besides: manifest)
        guard differences.isEmpty else {
            throw H2OLoadingError.damaged(folder, differences: differences)
        }
        return manifest
    }

    private func difference(of file: ModelManifest.File, in folder: URL) -> String? {
        guard file.isInside else { return "\(file.path) lies outside the folder" }
        let missing = "\(file.path) is missing"
        let url = folder.appending(path: file.path).resolvingSymlinksInPath()
        let attributes = try? FileManager.default.attributesOfItem(atPath: url.path)
        guard let attributes, attributes[.type] as? FileAttributeType == .typeRegular else {
            return missing
        }
        let size = (attributes[.size] as? NSNumber)?.intValue ?? 0
        guard size == file.size else {
            return "\(file.path) has \(size) bytes instead of \(file.size)"
        }
        guard self == .full else { return nil }
        guard let digest = try? FileDigest.sha256(of: url) else { return missing }
        return digest == file.sha256 ? nil : "\(file.path) has another sha256"
    }

    /// Weights files that the manifest does not list. They are errors, because mlx-swift-lm
    /// loads every weights file in the folder.
    private func strays(in folder: URL, besides manifest: ModelManifest) -> [String] {
        let listed = Set(manifest.files.map(\.path))
        let paths = FileManager.default.enumerator(atPath: folder.path)?.allObjects ?? []
        return paths.compactMap { $0 as? String }
            .filter { $0.hasSuffix(".safetensors") && !listed.contains($0) }
            .sorted()
            .map { "\($0) does not belong there" }
    }
}
