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
    }

    package let format: Int
    /// Where the model came from.
    package let model: String
    package let files: [File]
    /// Says which model it is: caches of one cannot be used with another. 64 lowercase
    /// hexadecimal digits, of weights, configuration and tokenizer; nil in a manifest of an
    /// earlier version.
    package let digest: String?

    /// - Throws: ``ModelBundleError``
    package static func read(in folder: URL) throws -> ModelManifest {
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
