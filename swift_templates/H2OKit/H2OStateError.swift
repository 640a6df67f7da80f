import Foundation

/// Why arrays or strings were refused as the state of a cache.
public enum H2OStateError: LocalizedError, Hashable, Sendable {
    /// The strings are those of another kind of cache or another version.
    case otherFormat(found: String, expected: String)
    /// Arrays and strings do not describe one cache.
    case inconsistent(String)

    public var errorDescription: String? {
        switch self {
        case .otherFormat(let found, let expected):
            "The saved cache's format is \"\(found)\"; this version reads \"\(expected)\" here. "
                + "Make the cache again from its prompt."
        case .inconsistent(let what):
            "The saved H2O cache is damaged: \(what). Make the cache again from its prompt."
        }
    }
}
