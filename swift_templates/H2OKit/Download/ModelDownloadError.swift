import Foundation

/// Why a model was not fetched. What has arrived is kept for the next attempt.
public enum ModelDownloadError: LocalizedError, Hashable, Sendable {
    /// The app does not contain the model's `manifest.json`.
    case noManifest
    /// The manifest has no digests of pieces: the package was made without `--download`.
    case noPieces
    /// The server was not reached, or the connection broke. The system says why.
    case network(reason: String)
    /// The server answered with another HTTP status than asked for.
    case status(Int, path: String)
    /// The server sends files only as a whole.
    case noRanges(path: String)
    /// The server has a file of another size. Bytes.
    case otherSize(path: String, expected: Int, found: Int)
    /// A piece arrived with other bytes, also when it was asked for again.
    case otherContent(path: String, offset: Int)
    /// There is too little room on the device. Bytes.
    case noSpace(needed: Int, free: Int)
    /// What arrived could not be kept. The system says why.
    case storage(reason: String)
    /// ``ModelDownload/stop()`` was called.
    case stopped

    public var errorDescription: String? {
        switch self {
        case .noManifest:
            "The app has no \(ModelManifest.fileName) of its model. Add Model/manifest.json of "
                + "the package to the app's target."
        case .noPieces:
            "The app's manifest does not say how to fetch the model. Make the package with "
                + "--download."
        case .network(let reason):
            "The model was not fetched. Check the connection, and try again. (\(reason))"
        case .status(let status, let path):
            "The server answered \(status) for \(path). Try again later."
        case .noRanges(let path):
            "The server sends \(path) only as a whole. It must answer requests for ranges of "
                + "bytes."
        case .otherSize(let path, let expected, let found):
            "The server has a \(path) of \(found) bytes instead of \(expected). Update the app, "
                + "or try again later."
        case .otherContent(let path, let offset):
            "The server has another \(path) than this app needs, from byte \(offset) on. Update "
                + "the app, or try again later."
        case .noSpace(let needed, let free):
            "The model needs \(Self.megabytes(needed)) MB more, and \(Self.megabytes(free)) MB "
                + "are free. Free some storage, and try again."
        case .storage(let reason):
            "The model could not be stored: \(reason)"
        case .stopped:
            "The download was stopped. What has arrived is kept."
        }
    }

    /// Whether the same request may succeed a moment later.
    var isTransient: Bool {
        switch self {
        case .network, .otherContent: true
        case .status(let status, _): status >= 500
        default: false
        }
    }

    private static func megabytes(_ bytes: Int) -> Int { (bytes + 999_999) / 1_000_000 }
}
