import Foundation
import H2OKit
import MLXLMCommon

/// The state of a conversation without its caches, which follow from the steps.
package struct ConversationState: Codable, Hashable, Sendable {
    /// What the caches have read.
    package var steps = CacheSteps()
    /// The digest of the messages whose tokens the caches have read, or that are in ``unread``.
    package var chain: TranscriptChain.Head
    /// The next tokens, which no cache has read yet.
    package var unread = [Int]()
    /// The numbers of tokens of the chunks in which the first unread tokens will be read. The other
    /// unread tokens have no chunks yet, because more tokens may follow them.
    package var chunks = [Int]()
    /// Whether the last reply ended with a stop token.
    package var ended = true
    /// Whether the last steps wrote a reply that was cut off, so that it continues from here.
    package var isCutOff = false
    /// The state before the thoughts of this turn, if the template leaves thoughts out of later
    /// turns.
    package var beforeThoughts: ConversationPoint?
    /// Whether the caches have read thoughts in this turn.
    package var hasThoughts = false
    /// Positions of the system prompt.
    package var pinned = 0 ..< 0

    /// The steps so far, and those in which the unread tokens will be read.
    var allSteps: CacheSteps {
        var (all, next) = (steps, unread[...])
        for count in chunks {
            all.read(next.prefix(count))
            next = next.dropFirst(count)
        }
        return all
    }

    /// The last tokens, those that are not read yet included.
    func lastTokens(_ count: Int) -> [Int] {
        Array((steps.suffix(count) + unread).suffix(count))
    }

    /// Decides the chunks of all unread tokens.
    mutating func cutUnread(_ cuts: PromptCuts) {
        let decided = steps.count + chunks.reduce(0, +)
        chunks += cuts.lengths(from: decided, to: steps.count + unread.count)
    }

    /// Counts the first chunk as read.
    mutating func readChunk() {
        steps.read(unread.prefix(chunks[0]))
        unread.removeFirst(chunks.removeFirst())
    }

    /// Removes tokens from the end of the unread tokens.
    mutating func removeUnread(_ count: Int) {
        unread.removeLast(min(count, unread.count))
        while let last = chunks.last, chunks.reduce(0, +) > unread.count {
            let kept = last - (chunks.reduce(0, +) - unread.count)
            chunks.removeLast()
            if kept > 0 { chunks.append(kept) }
        }
    }

    /// This state as a place to which its later states can return.
    var point: ConversationPoint {
        ConversationPoint(
            count: steps.count, chain: chain, unread: unread, chunks: chunks, ended: ended,
            isCutOff: isCutOff, hasThoughts: hasThoughts,
            beforeThoughts: beforeThoughts.map { [$0] } ?? [])
    }

    /// An earlier state.
    func at(_ point: ConversationPoint) -> ConversationState {
        var state = self
        state.steps = steps.prefix(point.count)
        (state.chain, state.unread, state.chunks) = (point.chain, point.unread, point.chunks)
        (state.ended, state.isCutOff) = (point.ended, point.isCutOff)
        (state.hasThoughts, state.beforeThoughts) = (point.hasThoughts, point.beforeThoughts.first)
        return state
    }

    /// Why no conversation can be in this state; nil if one can. A state from a file is not
    /// trusted, because anybody can compute the file's digest.
    ///
    /// - Parameters:
    ///   - vocabulary: the model's number of tokens; nil if its files do not contain it
    ///   - caches: the caches that were saved with the state
    func problem(vocabulary: Int?, caches: [any KVCache]) -> String? {
        let tokens = CacheSteps.tokens(vocabulary)
        if !steps.isSound(tokens: tokens) {
            return "its steps have tokens that are not in the model's vocabulary, or no end"
        }
        if !caches.evicting.allSatisfy({ $0.offset == steps.count }) {
            return "its caches have read a different number of tokens"
        }
        if let problem = point.problem(in: steps, tokens: tokens) { return problem }
        if pinned.lowerBound < 0 || pinned.upperBound > point.end {
            return "its pinned positions are beyond its tokens"
        }
        return nil
    }
}

/// An earlier state, to which a conversation can return: the parts of it that do not follow from
/// the present state.
package struct ConversationPoint: Codable, Hashable, Sendable {
    /// The number of tokens that the caches have read.
    package let count: Int
    let chain: TranscriptChain.Head
    let unread: [Int]
    let chunks: [Int]
    let ended: Bool
    let isCutOff: Bool
    let hasThoughts: Bool
    /// At most one.
    let beforeThoughts: [ConversationPoint]

    /// The number of tokens, those that are not read yet included.
    var end: Int { count + unread.count }

    /// Describes why no conversation with these steps can have been in this state; nil if one can.
    func problem(in steps: CacheSteps, tokens: Range<Int>) -> String? {
        if !steps.hasStep(endingAt: count) { return "it has a state that none of its steps ends" }
        if chain.count < 0 { return "it has a negative number of messages" }
        if !unread.allSatisfy(tokens.contains) {
            return "it has tokens that are not in the model's vocabulary"
        }
        if !chunks.allSatisfy({ 0 < $0 && $0 <= unread.count })
            || chunks.reduce(0, +) > unread.count
        {
            return "it has larger chunks than tokens to read"
        }
        return beforeThoughts.lazy.compactMap { $0.problem(in: steps, tokens: tokens) }.first
    }
}

/// A conversation with its own caches, which can continue. Only jobs on its model's executor use
/// it.
package struct ConversationHead: @unchecked Sendable {
    package var state: ConversationState
    package var caches: [any KVCache]
    /// The folder of the caches' archives; nil for archives in memory.
    package var archive: ConversationFolder?
    /// The model's output after the last step, for the last token; nil if it was not kept.
    var output: LMOutput?
}

/// Caches of an earlier state of a conversation. They save the time to repeat its steps, and change
/// nothing else. Only jobs on the model's executor use it.
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
