import Foundation
import MLX
import MLXLMCommon

extension KVCache {
    /// This cache again, with nothing outstanding. Rows are copied when one of the two writes
    /// next; segments of an archive in memory are shared.
    ///
    /// - Parameter archive: where an archive in files goes on, a folder of the conversation's
    ///   with the same files. nil keeps what is archived from now on in memory
    /// - Throws: ``H2OCacheError/archive(_:)`` where the folder has not the archive
    package func copied(archive: URL? = nil) throws -> any KVCache {
        if let own = self as? any H2OCacheImplementation {
            own.settle()
            guard let archive, own.core.recall?.archive.mark != nil else { return own.copy() }
            return try type(of: own).init(
                state: own.state, metaState: own.metaState, archive: archive)
        }
        guard let list = copy() as? CacheList else { return copy() }
        var failure: (any Error)?
        list.mapChildren { child in
            do {
                return try child.copied(archive: archive)
            } catch {
                failure = error
                return child
            }
        }
        if let failure { throw failure }
        return list
    }

    /// Bytes of its buffers, those of an archive left out: copies share its segments.
    package var byteCount: Int {
        if self is CacheList { return leaves.map(\.byteCount).reduce(0, +) }
        let own = (self as? any H2OCacheImplementation)?.core
        let arrays = own.map { ($0.rows?.arrays ?? []) + ($0.ledger?.arrays ?? []) }
        return (arrays ?? innerState()).map(\.nbytes).reduce(0, +)
    }
}
