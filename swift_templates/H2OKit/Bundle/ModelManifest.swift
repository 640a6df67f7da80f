import Foundation

/// The expected files of a model folder: its `manifest.json`, written when it was bundled.
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
        /// Of each piece of ``ModelManifest/pieceSize`` bytes, the last one as short as it is;
        /// nil where the model is in the app.
        package let pieces: [String]?

        /// Whether the path leads to a place inside the folder.
        var isInside: Bool {
            let parts = path.split(separator: "/", omittingEmptySubsequences: false)
            return !parts.contains { ["", ".", ".."].contains($0) }
        }
    }

    package let format: Int
    /// Where the model came from.
    package let model: String
    package let files: [File]
    /// Says which model it is: caches of one cannot be used with another. 64 lowercase
    /// hexadecimal digits, of weights, configuration and tokenizer; nil in a manifest of an
    /// earlier version.
    package let digest: String?
    /// Bytes of the pieces in which a model that is not in the app is fetched.
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
