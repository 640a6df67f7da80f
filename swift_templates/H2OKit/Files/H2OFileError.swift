import Foundation

/// Why a file of caches was not written or read.
public enum H2OFileError: LocalizedError, Hashable, Sendable {
    /// The file holds something else.
    case otherKind(file: String, found: String)
    /// The file is of another version.
    case otherVersion(file: String, found: String, expected: String)
    /// A cache in it is of a kind or version that is not read.
    case otherCache(file: String, found: String, known: [String])
    /// The file was cut short or changed after it was written.
    case torn(file: String)
    /// The file belongs to another model. Both are the names of models.
    case otherModel(file: String, found: String, expected: String)
    /// The file's caches had other settings. Both are JSON.
    case otherPolicy(file: String, found: String, expected: String)
    /// The file was made with another chat template.
    case otherTemplate(file: String)
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
        case .torn(let file):
            "\(file) is not as it was written: it was cut short or changed. Use an earlier copy, "
                + "or start again."
        case .otherModel(let file, let found, let expected):
            "\(file) belongs to the model \(found), and this is \(expected). Go on with the "
                + "model that it was made with, or start again."
        case .otherPolicy(let file, let found, let expected):
            "The caches in \(file) had the settings \(found), and those here have \(expected). "
                + "Use the same settings, or start again."
        case .otherTemplate(let file):
            "\(file) was made with another chat template. Go on with the tokenizer that it was "
                + "made with, or start again."
        case .notWritten(let index, let found):
            "Cache \(index) is \(found) and cannot be written to a file."
        }
    }
}
