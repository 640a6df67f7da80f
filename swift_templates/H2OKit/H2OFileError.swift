import Foundation

/// Why a file of caches was not written or read.
public enum H2OFileError: LocalizedError, Hashable, Sendable {
    /// The file holds something else.
    case otherKind(file: String, found: String)
    /// The file is of another version.
    case otherVersion(file: String, found: String, expected: String)
    /// A cache in it is of a kind or version that is not read.
    case otherCache(file: String, found: String, known: [String])
    /// An empty cache, or one of a kind that is not written.
    case notWritten(index: Int, found: String)

    public var errorDescription: String? {
        switch self {
        case .otherKind(let file, let found):
            "\(file) is no file of H2O caches (its kind is \"\(found)\")."
        case .otherVersion(let file, let found, let expected):
            "\(file) has version \"\(found)\"; this release reads \"\(expected)\". Make the "
                + "caches again from their prompt."
        case .otherCache(let file, let found, let known):
            "\(file) has a cache \"\(found)\"; this release reads "
                + known.joined(separator: ", ") + "."
        case .notWritten(let index, let found):
            "Cache \(index) is \(found) and cannot be written to a file."
        }
    }
}
