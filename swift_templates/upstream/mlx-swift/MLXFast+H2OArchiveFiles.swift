import Cmlx

/// Archives in files: a folder per conversation, in it one per layer.
extension MLXFast {

    /// What is wrong with an archive in files; caches throw it within their own error.
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

    /// Where a saved cache's archive ends in its folder.
    public struct H2OArchiveMark: Hashable, Sendable {
        /// Of the conversation, random.
        public var session: String
        /// Segments so far, those dropped included.
        public var count: Int
        /// Of the segments' digests, hexadecimal.
        public var chain: String

        public init(session: String, count: Int, chain: String) {
            self.session = session
            self.count = count
            self.chain = chain
        }
    }

    /// The folder of one layer's archive, locked as long as this or an archive in it exists.
    public final class H2OArchiveFolder {
        fileprivate let ctx: mlx_h2o_archive_folder

        /// - Parameters:
        ///   - path: made if it is not there
        ///   - mark: where it is continued; nil for a new archive
        /// - Throws: ``H2OArchiveFailure``
        public init(_ path: String, continuing mark: H2OArchiveMark? = nil) throws {
            var ctx = mlx_h2o_archive_folder()
            var failure = mlx_h2o_archive_failure()
            if let mark {
                var cMark = mark.cMark
                mlx_h2o_archive_folder_open(&ctx, &failure, path, &cMark)
            } else {
                mlx_h2o_archive_folder_open(&ctx, &failure, path, nil)
            }
            if let failure = H2OArchiveFailure(failure) { throw failure }
            self.ctx = ctx
        }

        deinit {
            mlx_h2o_archive_folder_free(ctx)
        }
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
        path = text(failure.path)
    }
}

extension MLXFast.H2OArchiveFolder? {
    /// For a C call that keeps its own handle.
    var cFolder: mlx_h2o_archive_folder { self?.ctx ?? mlx_h2o_archive_folder() }
}

extension MLXFast.H2OArchiveMark {
    init(_ mark: mlx_h2o_archive_mark) {
        self.init(session: text(mark.session), count: Int(mark.count), chain: text(mark.chain))
    }

    fileprivate var cMark: mlx_h2o_archive_mark {
        var mark = mlx_h2o_archive_mark()
        mark.count = Int64(count)
        withUnsafeMutableBytes(of: &mark.session) { copy(session, to: $0) }
        withUnsafeMutableBytes(of: &mark.chain) { copy(chain, to: $0) }
        return mark
    }
}

/// The text in a C array of characters.
private func text(_ characters: some Any) -> String {
    withUnsafeBytes(of: characters) { bytes in
        String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
    }
}

/// Puts a text into a C array of characters, cut where it is longer, with a zero behind it.
private func copy(_ text: String, to characters: UnsafeMutableRawBufferPointer) {
    characters.copyBytes(from: text.utf8.prefix(characters.count - 1))
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
