import Foundation
import MLX

extension MLXFast.H2OArchiveFailure: @retroactive LocalizedError {
    /// What is wrong, and with which file.
    public var errorDescription: String? {
        let reason = error == 0 ? "" : ": \(String(cString: strerror(error)))"
        switch problem {
        case .locked: return "Another cache has the archive \(path) open."
        case .notEmpty: return "\(path) holds the archive of another conversation."
        case .other: return "The archive \(path) is not that of the saved cache."
        case .tooShort: return "The archive \(path) ends before the saved cache does."
        case .damaged: return "\(path) is missing or not as the archive wrote it\(reason)."
        case .unusable: return "The archive \(path) cannot be used\(reason)."
        case .notWritten: return "\(path) of the archive cannot be written\(reason)."
        case .notRead: return "\(path) of the archive cannot be read\(reason)."
        case .tooSlow: return "The disk of \(path) does not keep up with the tokens."
        case .forked: return "\(path) belongs to the process that this one was forked from."
        }
    }
}
