import Foundation

/// The expected files of a model folder: its `manifest.json`, written when it was bundled.
public struct ModelManifest: Codable, Hashable, Sendable {
    /// The format that this version reads.
    public static let format = 1
    public static let fileName = "manifest.json"

    public struct File: Codable, Hashable, Sendable {
        /// Relative to the folder.
        public let path: String
        /// Bytes.
        public let size: Int
        /// 64 lowercase hexadecimal digits.
        public let sha256: String
    }

    public let format: Int
    /// Where the model came from.
    public let model: String
    public let files: [File]
    /// Says which model it is: caches of one cannot be used with another. 64 lowercase
    /// hexadecimal digits, of weights, configuration and tokenizer; nil in a manifest of an
    /// earlier version.
    public let digest: String?

    /// - Throws: ``ModelBundleError``
    public static func read(in folder: URL) throws -> ModelManifest {
        let url = folder.appending(path: fileName)
        let data: Data
        do {
            data = try Data(contentsOf: url)
        } catch {
            throw ModelBundleError.noManifest(folder)
        }
        guard let manifest = try? JSONDecoder().decode(Self.self, from: data) else {
            throw ModelBundleError.unreadableManifest(url)
        }
        guard manifest.format == format else {
            throw ModelBundleError.otherFormat(manifest.format)
        }
        return manifest
    }
}
