import Cmlx

/// Archives in files: a folder per conversation, in it one per layer.
extension MLXFast {

    /// What is wrong with an archive in files.
    public struct H2OArchiveFailure: Error, Hashable, Sendable {
        public enum Problem: Hashable, Sendable {
            /// Open elsewhere, in this process or another.
            case locked
            /// Holds the archive of another conversation.
            case notEmpty
            /// Is not, or no longer, the one of the saved cache.
            case other
            /// Ends before the saved cache does.
            case tooShort
            /// A file is missing or not as it was written.
            case damaged
            /// The system refused when it was opened.
            case unusable
            /// The system refused later, and the archive is lost.
            case notWritten
            /// Refused later, or not as it was written, and the archive is lost.
            case notRead
            /// More waited to be written than memory allows, and the archive is lost.
            case tooSlow
            /// Used in a forked process, which has none.
            case forked
        }

        public let problem: Problem
        /// errno, or 0 where the system refused nothing.
        public let error: Int32
        /// The file or folder.
        public let path: String
    }

    /// Deletes the folders in `root` that hold archives and that nobody has open.
    ///
    /// - Throws: ``H2OArchiveFailure``
    public static func h2oDeleteStaleArchives(in root: String) throws {
        var failure = mlx_h2o_archive_failure()
        mlx_h2o_archives_delete_stale(&failure, root, nil, 0)
        if let failure = H2OArchiveFailure(failure) { throw failure }
    }
}

extension MLXFast.H2OArchiveFailure {
    /// Nil where nothing is wrong.
    init?(_ failure: mlx_h2o_archive_failure) {
        guard let problem = Problem(failure.problem) else { return nil }
        self.problem = problem
        error = failure.error
        path = withUnsafeBytes(of: failure.path) { bytes in
            String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
        }
    }
}

extension MLXFast.H2OArchiveFailure.Problem {
    fileprivate init?(_ problem: mlx_h2o_archive_problem) {
        switch problem {
        case MLX_H2O_ARCHIVE_FINE: return nil
        case MLX_H2O_ARCHIVE_LOCKED: self = .locked
        case MLX_H2O_ARCHIVE_NOT_EMPTY: self = .notEmpty
        case MLX_H2O_ARCHIVE_OTHER: self = .other
        case MLX_H2O_ARCHIVE_TOO_SHORT: self = .tooShort
        case MLX_H2O_ARCHIVE_DAMAGED: self = .damaged
        case MLX_H2O_ARCHIVE_NOT_WRITTEN: self = .notWritten
        case MLX_H2O_ARCHIVE_NOT_READ: self = .notRead
        case MLX_H2O_ARCHIVE_TOO_SLOW: self = .tooSlow
        case MLX_H2O_ARCHIVE_FORKED: self = .forked
        default: self = .unusable
        }
    }
}
