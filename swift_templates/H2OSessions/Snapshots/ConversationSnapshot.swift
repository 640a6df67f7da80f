import Foundation
import H2OKit
import MLXLMCommon

/// What a conversation knows besides its caches.
package struct ConversationState: Codable, Hashable, Sendable {
    /// The tokens in the caches.
    package var read = TokenLedger()
    /// The messages that the caches and ``unread`` stand for.
    package var chain: TranscriptChain.Head
    /// Tokens that come next, in no cache yet.
    package var unread = [Int]()
    /// Whether the last reply ended with a stop token.
    package var ended = true
    /// Positions of the system prompt.
    package var pinned = 0 ..< 0
    /// Positions of messages' texts, by the messages' indices, as far as they are known.
    package var texts = [Int: Range<Int>]()

    package init(chain: TranscriptChain.Head) {
        self.chain = chain
    }

    /// Why no conversation can be in this state; nil if one can. Of a file, whose digest anybody
    /// can compute, nothing else is known.
    ///
    /// - Parameters:
    ///   - vocabulary: tokens that the model knows; nil if its files do not say
    ///   - caches: those that were saved with it
    func problem(vocabulary: Int?, caches: [any KVCache]) -> String? {
        let tokens = 0 ..< (vocabulary ?? Int(Int32.max))
        if !unread.allSatisfy(tokens.contains) { return "the model has no such tokens" }
        if chain.count < 0 { return "it has a negative number of messages" }
        if !read.isSound { return "its tokens contradict their number" }
        if !caches.evicting.allSatisfy({ $0.offset == read.count }) {
            return "its caches have read another number of tokens"
        }
        let end = read.count.addingReportingOverflow(unread.count)
        if end.overflow || pinned.lowerBound < 0 || pinned.upperBound > end.partialValue {
            return "its pinned positions are not in it"
        }
        let positions = 0 ..< end.partialValue
        if !texts.values.allSatisfy({ $0.clamped(to: positions) == $0 }) {
            return "the texts of its messages are not in it"
        }
        return nil
    }
}

/// A conversation with caches of its own, which can go on. Only jobs on its model's executor
/// use it.
package struct ConversationHead: @unchecked Sendable {
    package var state: ConversationState
    package var caches: [any KVCache]
    /// Where the caches' archives are; nil for memory.
    package var archive: ConversationFolder?

    package init(state: ConversationState, caches: [any KVCache], archive: ConversationFolder? = nil) {
        self.state = state
        self.caches = caches
        self.archive = archive
    }
}

/// A conversation at a moment, to which it can return: evicted rows cannot be taken back. Only
/// jobs on its model's executor use it.
///
/// Caches copy on write, so it takes memory once the conversation goes on: a copy of all rows.
/// Segments of an archive are shared.
package struct ConversationSnapshot: @unchecked Sendable {
    /// Its caches keep what they archive in memory, and are never given out.
    private let copy: ConversationHead

    package init(of head: ConversationHead) throws {
        copy = ConversationHead(
            state: head.state, caches: try head.caches.copied(),
            archive: head.archive)
    }

    package var state: ConversationState { copy.state }

    /// A conversation that goes on from here. The snapshot stays as it is.
    ///
    /// - Parameter archives: where a new folder is made for archives in files
    /// - Throws: `H2OCacheError.archive` or an error of the file system where the files are
    ///   no longer there
    package func head(in archives: URL) throws -> ConversationHead {
        let folder = try copy.archive.map {
            try ConversationFolder(in: archives, archivesOf: $0.url)
        }
        let caches = try copy.caches.copied(archive: folder?.url)
        return ConversationHead(state: state, caches: caches, archive: folder)
    }

    /// What holds the archives that its file does not have; nil where they are in memory.
    var archive: ConversationFolder? { copy.archive }

    /// What a file will have that ``SnapshotFile`` reads.
    ///
    /// - Throws: `H2OCacheError.notSavable`
    func contents(identity: ConversationIdentity) throws -> SnapshotFile.Computed {
        try SnapshotFile.computed(copy.state, caches: copy.caches, identity: identity)
    }

    /// Bytes of its buffers, without archives.
    package var byteCount: Int { copy.caches.map(\.byteCount).reduce(0, +) }
}
