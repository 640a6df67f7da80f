import H2OKit
import MLX
import MLXLMCommon

/// A transcript that a model continues, and the caches that have read it.
///
/// All kinds of sessions stand on it. Each asks with its whole transcript; what the caches have
/// read already is not read again.
package actor Conversation {
    nonisolated let model: H2OModel

    package nonisolated var unownedExecutor: UnownedSerialExecutor { model.unownedExecutor }

    /// Empty before the first reply.
    var caches = [any KVCache]()
    /// Where the caches' archives are; nil for memory.
    var archive: ArchiveFolder?
    /// nil before the first reply.
    var state: ConversationState?
    /// To which it can return.
    package var snapshots: SnapshotStore
    /// Why this reply reads the system prompt although the package has its caches.
    var preparedPromptProblem: PreparedPromptProblem?
    /// Where the thoughts of this turn begin, if the template leaves them out of later turns.
    var beforeThoughts: ConversationSnapshot?
    /// Whether there are thoughts after that.
    private var hasThoughts = false
    private var kept = H2OKeptPositions([])

    package init(model: H2OModel) {
        self.model = model
        snapshots = model.loaded.makeSnapshots()
    }

    /// One that goes on from the caches of another, and can return to where that could.
    init(model: H2OModel, head: ConversationHead?, snapshots: SnapshotStore) {
        self.model = model
        self.snapshots = snapshots
        (caches, archive, state) = (head?.caches ?? [], head?.archive, head?.state)
    }

    /// The model's reply to the last message. It ends with the model's turn, or when the task
    /// is canceled; what was generated until then stays in the conversation.
    ///
    /// - Parameters:
    ///   - transcript: all messages. The response's ``H2OSession/Response/message`` follows
    ///     them in the transcript of the next call.
    ///   - emit: gets parts as they are generated; the last one is the usage
    /// - Throws: ``H2OSessionError``, an `MLXError` or the chat template's own error. The next
    ///   call then goes on from the nearest snapshot.
    package func respond(
        to transcript: [H2OMessage], tools: [H2OToolDefinition] = [],
        options: H2OSession.Options = H2OSession.Options(),
        emit: @Sendable (H2OSession.Part) -> Void = { _ in }
    ) async throws -> H2OSession.Response {
        try Transcript.check(transcript, tools)
        try options.sampling.check()
        let options = try options.resolved(for: transcript, tools)
        let begun = loaded.platform.elapsed()
        let format = loaded.format(tools: tools, options: options)
        var chain = try format.chain(of: transcript)
        do {
            try await model.turns.begin()
        } catch is CancellationError {
            return canceled(begun, emit)
        }
        defer { model.turns.end() }
        do {
            do {
                try await place(transcript, chain, format)
            } catch is CancellationError {
                return canceled(begun, emit)
            }
            let response = try await generate(transcript, format, options, begun: begun, emit)
            chain.append(response.message.withoutThoughts)
            state?.chain = chain.head
            hasThoughts = hasThoughts || !response.thoughts.isEmpty
            if response.toolCalls.isEmpty { try await endTurn() } else { await keepSnapshot() }
            return response
        } catch {
            leave()
            throw error
        }
    }

    /// Forgets the transcript.
    package func forget() {
        leave()
        snapshots.removeAll()
    }

    /// Lets the caches go.
    func leave() {
        caches = []
        archive = nil
        state = nil
        beforeThoughts = nil
        hasThoughts = false
    }

    /// A reply of which nothing was generated.
    private func canceled(
        _ begun: Duration, _ emit: (H2OSession.Part) -> Void
    ) -> H2OSession.Response {
        let usage = H2OSession.Usage(
            duration: loaded.platform.elapsed() - begun, stop: .cancelled)
        emit(.usage(usage))
        return H2OSession.Response(usage: usage)
    }

    /// Tokens in the caches; most of them may have been evicted.
    package var tokensSeen: Int { state?.read.count ?? 0 }

    /// Which positions the caches keep now.
    ///
    /// In the background those that were asked for last.
    package var keptPositions: H2OKeptPositions {
        get async {
            let background = loaded.platform.background
            if !background.isClosed,
                let now = try? await background.withGPU({ H2OKeptPositions(caches) })
            {
                kept = now
            }
            return kept
        }
    }

    nonisolated var loaded: LoadedModel { model.loaded }

    /// Whether the caches have read a message, and not only what comes before the first.
    var hasMessages: Bool { state.map { $0.chain.count > 0 } ?? false }

    /// What recall did in this conversation; nil without it.
    var recalled: H2ORecallStatistics? {
        H2ORecallStatistics(caches.flatMap(\.leaves).compactMap { $0 as? any H2OScoreTracking })
    }

    /// Brings caches and unread tokens to the end of the transcript.
    private func place(
        _ transcript: [H2OMessage], _ chain: TranscriptChain, _ format: PromptFormat
    ) async throws {
        // What reading ahead found is the first reply's to say.
        if state == nil || hasMessages { preparedPromptProblem = nil }
        let isAnswer = state.map { transcript.dropFirst($0.chain.count).first?.role == .tool }
        if isAnswer != true { try await dropThoughts() }
        if state.map({ chain.starts(with: $0.chain) }) != true {
            try await returnTo(chain)
        }
        var waiting = transcript[...]
        if let state, hasMessages {
            waiting = waiting.dropFirst(state.chain.count)
            let next = try format.following(
                state.chain.count, of: transcript, ended: state.ended)
            self.state?.unread.removeLast(min(next.replaced, state.unread.count))
            self.state?.unread += next.tokens
        } else {
            let opening = try format.opening(transcript)
            guard !opening.tokens.isEmpty else { throw H2OSessionError.emptyPrompt }
            try await begin(opening, at: chain.head)
        }
        state?.chain = chain.head
        state?.ended = false
        let new = state?.unread.count ?? 0
        guard new > 0 else { throw H2OSessionError.emptyPrompt }
        // Turns that are read again may be longer: they became so one by one.
        let hasTurns = waiting.drop { $0.role != .user }.contains { $0.role == .assistant }
        if let limit = loaded.facts.positions, new > limit, !hasTurns {
            throw H2OSessionError.promptTooLong(tokens: new, atMost: limit)
        }
    }

    /// Ends a turn of the model: takes its thoughts back, if later turns are without them, and
    /// keeps a snapshot.
    private func endTurn() async throws {
        // In the background that waits for the next turn.
        if !loaded.platform.background.isClosed { try? await dropThoughts() }
        await keepSnapshot()
    }

    /// Returns to where the thoughts of the last turn began. Its answer is read again with the
    /// next message.
    private func dropThoughts() async throws {
        defer { (beforeThoughts, hasThoughts) = (nil, false) }
        guard hasThoughts, let beforeThoughts else { return }
        goOn(
            from: try await loaded.platform.background.withGPU {
                try beforeThoughts.head(in: loaded.platform.archives)
            })
    }

    /// Goes on from the snapshot with most of the transcript's messages, if there is one.
    private func returnTo(_ chain: TranscriptChain) async throws {
        leave()
        let nearest = try await loaded.platform.background.withGPU {
            snapshots.nearest(to: chain)
        }
        if let nearest { goOn(from: nearest) }
    }

    /// Begins with the caches or the snapshot that have read most of the tokens, with empty
    /// caches, or with those that have read the system prompt already.
    func begin(_ opening: PromptFormat.Opening, at head: TranscriptChain.Head) async throws {
        let tokens = opening.tokens
        if let state, state.pinned == opening.pinned, state.read.count < tokens.count,
            state.read.begins(tokens)
        {
            self.state?.unread = Array(tokens[state.read.count...])
            return
        }
        leave()
        let nearest = try await loaded.platform.background.withGPU {
            snapshots.nearest(toTokens: tokens, pinned: opening.pinned)
        }
        if let nearest {
            goOn(from: nearest)
            state?.chain = head
            state?.unread = Array(tokens[nearest.state.read.count...])
            return
        }
        let inFiles = loaded.archiveInFiles && loaded.caches.configuration.recall != nil
        let folder = inFiles ? try loaded.platform.archives.make() : nil
        caches = try SessionCaches.make(
            loaded.caches, for: loaded.context.model, pinned: opening.pinned,
            archive: folder?.url)
        archive = folder
        var state = ConversationState(chain: head)
        state.unread = opening.tokens
        state.pinned = opening.pinned
        self.state = state
        try await beginPrepared(opening)
    }
}

extension H2OMessage {
    /// What a transcript is recognized by: chat templates leave thoughts of earlier turns out,
    /// and so do other kinds of sessions.
    var withoutThoughts: H2OMessage {
        var message = self
        message.thoughts = nil
        return message
    }
}
