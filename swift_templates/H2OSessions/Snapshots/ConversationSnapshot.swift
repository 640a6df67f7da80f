import Foundation
import H2OKit
import MLXLMCommon

/// The state of a conversation without its caches.
package struct ConversationState: Codable, Hashable, Sendable {
    /// The tokens that the caches have read.
    package var read = TokenLedger()
    /// The digest of the messages whose tokens the caches have read, or that are in ``unread``.
    package var chain: TranscriptChain.Head
    /// The next tokens, which no cache has read yet.
    package var unread = [Int]()
    /// Whether the last reply ended with a stop token.
    package var ended = true
    /// Positions of the system prompt.
    package var pinned = 0 ..< 0
    /// Positions of messages' texts, by the messages' indices, as far as they are known.
    package var texts = [Int: Range<Int>]()

    /// Why no conversation can be in this state; nil if one can. A state from a file is not
    /// trusted, because anybody can compute the file's digest.
    ///
    /// - Parameters:
    ///   - vocabulary: the model's number of tokens; nil if its files do not contain it
    ///   - caches: the caches that were saved with the state
    func problem(vocabulary: Int?, caches: [any KVCache]) -> String? {
        let tokens = 0 ..< (vocabulary ?? Int(Int32.max))
        if !unread.allSatisfy(tokens.contains) {
            return "it has tokens that are not in the model's vocabulary"
        }
        if chain.count < 0 { return "it has a negative number of messages" }
        if !read.isSound { return "its number of tokens does not match its tokens" }
        if !caches.evicting.allSatisfy({ $0.offset == read.count }) {
            return "its caches have read a different number of tokens"
        }
        let end = read.count.addingReportingOverflow(unread.count)
        if end.overflow || pinned.lowerBound < 0 || pinned.upperBound > end.partialValue {
            return "its pinned positions are beyond its tokens"
        }
        let positions = 0 ..< end.partialValue
        if !texts.values.allSatisfy({ $0.clamped(to: positions) == $0 }) {
            return "the texts of its messages are beyond its tokens"
        }
        return nil
    }
}

/// A conversation with its own caches, which can continue. Only jobs on its model's executor use
/// it.
package struct ConversationHead: @unchecked Sendable {
    package var state: ConversationState
    package var caches: [any KVCache]
    /// The folder of the caches' archives; nil for archives in memory.
    package var archive: ConversationFolder?
}

/// An earlier state of a conversation to which it can return, because evicted rows cannot be
/// restored in another way. Only jobs on its model's executor use it.
///
/// Caches copy on write: a snapshot takes memory for all rows as soon as the conversation
/// continues. Snapshot and conversation share the segments of an archive.
package struct ConversationSnapshot: @unchecked Sendable {
    /// Copies of the caches, which keep newly archived tokens in memory and are never used
    /// directly.
    private let copy: ConversationHead

    package init(of head: ConversationHead) throws {
        copy = ConversationHead(
            state: head.state, caches: try head.caches.copied(),
            archive: head.archive)
    }

    package var state: ConversationState { copy.state }

    /// Returns a conversation that continues from here. The snapshot does not change.
    ///
    /// - Parameter archives: the folder in which a new folder for archives is created
    /// - Throws: `H2OCacheError.archive` or an error of the file system if the files no longer
    ///   exist
    package func head(in archives: URL) throws -> ConversationHead {
        let folder = try copy.archive.map {
            try ConversationFolder(in: archives, archivesOf: $0.url)
        }
        let caches = try copy.caches.copied(archive: folder?.url)
        return ConversationHead(state: state, caches: caches, archive: folder)
    }

    /// The folder of the archives, which the snapshot's file does not contain; nil for archives in
    /// memory.
    var archive: ConversationFolder? { copy.archive }

    /// The content of a file that ``SnapshotFile`` reads.
    ///
    /// - Throws: `H2OCacheError.notSavable`
    func contents(identity: ConversationIdentity) throws -> SnapshotFile.Computed {
        try SnapshotFile.computed(copy, identity: identity)
    }

    /// Bytes of the caches' buffers, without archives.
    package var byteCount: Int { copy.caches.map(\.byteCount).reduce(0, +) }
}
