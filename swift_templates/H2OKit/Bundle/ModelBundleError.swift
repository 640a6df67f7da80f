import Foundation

/// Why a model folder was refused.
public enum ModelBundleError: LocalizedError, Hashable, Sendable {
    /// The folder has no `manifest.json`.
    case noManifest(URL)
    /// The manifest is not JSON, or not of the known form.
    case unreadableManifest(URL)
    /// The manifest has a format that this version does not read.
    case otherFormat(Int)
    /// The folder differs from its manifest.
    case damaged(URL, [Problem])

    /// One difference between the folder and its manifest. Sizes are in bytes.
    public enum Problem: Hashable, Sendable {
        case missing(path: String)
        case size(path: String, expected: Int, found: Int)
        /// The size is right, but the sha256 is not.
        case content(path: String)
        /// A weights file that the manifest does not list.
        case stray(path: String)
        /// The manifest lists a path outside the folder.
        case outside(path: String)
    }

    public var errorDescription: String? {
        switch self {
        case .noManifest(let folder):
            "\(folder.path) has no \(ModelManifest.fileName). Add the package's whole Model "
                + "folder to the app as a folder reference."
        case .unreadableManifest(let url):
            "\(url.path) is not a manifest of h2o-pack. Make the package again."
        case .otherFormat(let format):
            "The model's manifest has format \(format); this version reads "
                + "\(ModelManifest.format). Make the package again."
        case .damaged(let folder, let problems):
            "The model in \(folder.path) is not as it was bundled: "
                + problems.map(\.description).joined(separator: "; ")
                + ". Install the app again, or bundle the model again."
        }
    }
}

extension ModelBundleError.Problem: CustomStringConvertible {
    public var description: String {
        switch self {
        case .missing(let path): "\(path) is missing"
        case .size(let path, let expected, let found):
            "\(path) has \(found) bytes instead of \(expected)"
        case .content(let path): "\(path) has another sha256"
        case .stray(let path): "\(path) does not belong there"
        case .outside(let path): "\(path) lies outside the folder"
        }
    }
}
