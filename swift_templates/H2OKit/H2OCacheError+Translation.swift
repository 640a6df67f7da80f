import Foundation
import MLX

extension H2OCacheError {
    /// Does work with archives in files, whose failures become errors of caches.
    ///
    /// - Throws: ``archive(_:)``, an `MLXError`, or an error of the work
    package static func withArchives<Result>(_ work: () throws -> Result) throws -> Result {
        do {
            return try withError(work)
        } catch let failure as MLXFast.H2OArchiveFailure {
            throw H2OCacheError.archive(failure)
        }
    }

    /// Reads what a file holds. An error that names no file names this one.
    package static func reading<Result>(
        _ file: URL, _ work: () throws -> Result
    ) throws -> Result {
        do {
            return try work()
        } catch H2OCacheError.damaged(let reason, nil) {
            throw H2OCacheError.damaged(reason: reason, file: file)
        } catch H2OCacheError.otherFormat(let found, let known, nil) {
            throw H2OCacheError.otherFormat(found: found, known: known, file: file)
        }
    }
}
