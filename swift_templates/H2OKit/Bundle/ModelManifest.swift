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
    /// It identifies the model, because caches of one model cannot be used with another.
    package let digest: String
    /// Bytes of a piece. An app downloads a model that it does not contain in such pieces.
    package let pieceSize: Int?
    /// The most tokens of a prompt that are read at once.
    package let promptChunk: Int
    /// What the model's chat template does.
    package let chat: ChatFacts

    private enum CodingKeys: String, CodingKey {
        case format, model, files, digest, chat
        case pieceSize = "piece_size"
        case promptChunk = "prompt_chunk"
    }

    /// - Throws: ``H2OLoadingError``
    package static func read(in folder: URL) throws -> ModelManifest {
        let url = folder.appending(path: fileName)
        let data: Data
        do {
            data = try RegularFile.data(url)
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

extension ModelManifest {
    /// Compares a folder with its manifest and collects all differences.
    ///
    /// - Parameters:
    ///   - folder: contains the model's files and `manifest.json`
    ///   - everyByte: whether to compare the SHA-256 of every file too, which takes seconds per
    ///     gigabyte; if false, compares only the sizes of the files
    /// - Returns: the manifest
    /// - Throws: ``H2OLoadingError``
    @discardableResult
    package static func check(_ folder: URL, everyByte: Bool = false) throws -> ModelManifest {
        let manifest = try read(in: folder)
        let differences =
            manifest.files.compactMap { $0.difference(in: folder, everyByte) }
            + manifest.strays(in: folder)
        guard differences.isEmpty else {
            throw H2OLoadingError.damaged(folder, differences: differences)
        }
        return manifest
    }

    /// Weights files that the manifest does not list. They are errors, because mlx-swift-lm
    /// loads every weights file in the folder.
    private func strays(in folder: URL) -> [String] {
        let listed = Set(files.map(\.path))
        let paths = FileManager.default.enumerator(atPath: folder.path)?.allObjects ?? []
        return paths.compactMap { $0 as? String }
            .filter { $0.hasSuffix(".safetensors") && !listed.contains($0) }
            .sorted()
            .map { "\($0) is not in the manifest" }
    }
}

extension ModelManifest.File {
    fileprivate func difference(in folder: URL, _ everyByte: Bool) -> String? {
        guard isInside else { return "\(path) lies outside the folder" }
        let missing = "\(path) is missing"
        let url = folder.appending(path: path).resolvingSymlinksInPath()
        let attributes = try? FileManager.default.attributesOfItem(atPath: url.path)
        guard let attributes, attributes[.type] as? FileAttributeType == .typeRegular else {
            return missing
        }
        let bytes = (attributes[.size] as? NSNumber)?.intValue ?? 0
        guard bytes == size else { return "\(path) has \(bytes) bytes instead of \(size)" }
        guard everyByte else { return nil }
        guard let digest = try? FileDigest.sha256(of: url) else { return missing }
        return digest == sha256 ? nil : "\(path) has another sha256"
    }
}
