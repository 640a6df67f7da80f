import Foundation
import H2OKit
import MLX
import MLXLMCommon

/// A transcript that a model continues, and the caches that have read it.
///
/// All kinds of sessions use it. A session passes its whole transcript with each request, and the
/// conversation reads only what its caches have not read yet.
package actor Conversation: MemoryHolder {
    nonisolated let model: H2OModel

    package nonisolated var unownedExecutor: UnownedSerialExecutor { model.unownedExecutor }

    /// The state from which the conversation continues; nil until something is read.
    var head: ConversationHead?
    /// The digest of the instructions, tools and options with which the last messages were read.
    var opening: TranscriptChain.Head?
    /// Earlier states to which the conversation can return.
    package var snapshots: SnapshotStore
    /// Why this reply reads the system prompt although the package contains its caches.
    var preparedPromptProblem: PreparedPromptProblem?
    /// The transcript before the thoughts of this turn, if the template leaves thoughts out of
    /// later turns. A snapshot of this state exists.
    var beforeThoughts: TranscriptChain?
    /// Whether the caches contain thoughts after ``beforeThoughts``.
    private var hasThoughts = false
    private var lastPositions = H2OKeptPositions([])

    /// - Parameters:
    ///   - head: the state from which it continues
    ///   - snapshots: those of another conversation, to which it can return
    package init(
        model: H2OModel, head: ConversationHead? = nil, snapshots: SnapshotStore? = nil
    ) {
        self.model = model
        self.head = head
        self.snapshots = snapshots ?? model.loaded.makeSnapshots()
        model.holders.add(self)
    }

    /// Moves snapshots to files, or deletes them if the GPU cannot be used to move them.
    func releaseMemory() async {
        await moveSnapshots(all: true)
        snapshots.releaseMemory()
    }

    /// Generates the model's reply to the last message. It ends with the model's turn, or when the
    /// task is canceled; the text generated so far stays in the conversation.
    ///
    /// - Parameters:
    ///   - transcript: all messages. In the next call, the response's
    ///     ``H2OSession/Response/message`` follows them.
    ///   - emit: receives parts as they are generated; the last one is the usage
    /// - Throws: ``H2OSessionError``, an `MLXError` or the chat template's own error. The next call
    ///   then continues from the nearest snapshot.
    package func respond(
        to transcript: [H2OMessage], tools: [H2OToolDefinition] = [],
        options: H2OSession.Options = H2OSession.Options(),
        emit: @Sendable (H2OSession.Part) -> Void = { _ in }
    ) async throws -> H2OSession.Response {
        try await respond(to: loaded.request(transcript, tools, options), emit: emit)
    }

    func respond(
        to request: ConversationRequest, emit: @Sendable (H2OSession.Part) -> Void
    ) async throws -> H2OSession.Response {
        do {
            try await model.turns.begin()
        } catch is CancellationError {
            return canceled(request, emit)
        }
        defer { model.turns.end() }
        do {
            let beginning = request.options.beginning
            do {
                try await place(request)
                readBeginning(of: beginning, at: request.transcript.count)
            } catch is CancellationError {
                return canceled(request, emit)
            }
            let response = try await generate(request, emit)
            var chain = request.chain
            chain.append(response.message(after: beginning).withoutThoughts)
            head?.state.chain = chain.head
            hasThoughts = hasThoughts || !response.thoughts.isEmpty
            let isOver = response.toolCalls.isEmpty
            // This is a separate task, so that a canceled reply also ends normally.
            await Task {
                if isOver { await endTurn() } else { await keepSnapshot() }
            }.value
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

    /// Releases the caches.
    func leave() {
        goOn(from: nil)
        beforeThoughts = nil
        hasThoughts = false
    }

    /// The response of a reply that was canceled before its first token.
    private func canceled(
        _ request: ConversationRequest, _ emit: (H2OSession.Part) -> Void
    ) -> H2OSession.Response {
        var response = H2OSession.Response()
        response.usage.duration = loaded.platform.elapsed() - request.begun
        response.usage.stop = .cancelled
        emit(.usage(response.usage))
        return response
    }

    var state: ConversationState? { head?.state }

    var caches: [any KVCache] { head?.caches ?? [] }

    /// Tokens that the caches have read; most of them may have been evicted.
    package var tokensSeen: Int { state?.read.count ?? 0 }

    /// The positions that the caches keep now. In the background, returns the result of the last
    /// call in the foreground.
    package var keptPositions: H2OKeptPositions {
        get async {
            let background = loaded.platform.background
            if !background.isClosed,
                let positions = try? await onGPU({ H2OKeptPositions(caches) })
            {
                lastPositions = positions
            }
            return lastPositions
        }
    }

    nonisolated var loaded: LoadedModel { model.loaded }

    /// Runs a step of work on the GPU, when the app may use it.
    ///
    /// - Throws: ``H2OSessionError/inBackground``, `CancellationError`, or an error of the work
    func onGPU<Result>(isLong: Bool = false, _ work: () throws -> Result) async throws -> Result {
        do {
            return try await loaded.platform.background.withGPU(isLong: isLong, work)
        } catch is InBackgroundError {
            throw H2OSessionError.inBackground
        }
    }

    /// Whether the caches have read a message, and not only instructions and tools.
    var hasMessages: Bool { state.map { $0.chain.count > 0 } ?? false }

    /// The figures of recall in this conversation; nil without recall.
    var recalled: H2ORecallStatistics? {
        H2ORecallStatistics(caches.evicting)
    }

    /// Brings the caches and the unread tokens to the end of the transcript.
    private func place(_ request: ConversationRequest) async throws {
        let (transcript, chain, format) = (request.transcript, request.chain, request.format)
        // If the reply continues one that was cut off, the template may now render the beginning of
        // the reply differently, for example without its thoughts. So the last message is read again.
        let target = request.options.beginning == nil ? chain : chain.beforeLast
        opening = chain.heads[0]
        // The first reply reports a problem that prewarming found.
        if state == nil || hasMessages { preparedPromptProblem = nil }
        let isAnswer = state.map { transcript.dropFirst($0.chain.count).first?.role == .tool }
        if isAnswer != true { try await dropThoughts() }
        if state.map({ target.starts(with: $0.chain) }) != true {
            try await returnTo(target)
        }
        if let state, state.chain == chain.head, try format.beginsOtherwise(than: state.unread) {
            try await returnTo(chain.beforeLast)
        }
        var waiting = transcript[...]
        if let state, hasMessages {
            waiting = waiting.dropFirst(state.chain.count)
            let next = try format.following(
                state.chain.count, of: transcript, ended: state.ended)
            head?.state.unread.removeLast(min(next.replaced, state.unread.count))
            let position = state.read.count + max(0, state.unread.count - next.replaced)
            locate(waiting, in: next.tokens, from: position)
            head?.state.unread += next.tokens
        } else {
            let opening = try format.opening(transcript)
            guard !opening.tokens.isEmpty else { throw H2OSessionError.emptyPrompt }
            try await begin(opening, at: chain.head)
            head?.state.texts = [:]
            locate(transcript[...], in: opening.tokens, from: 0)
        }
        head?.state.chain = chain.head
        head?.state.texts[transcript.count] = nil
        head?.state.ended = false
        let new = state?.unread.count ?? 0
        guard new > 0 else { throw H2OSessionError.emptyPrompt }
        // Turns that were read one by one may together be longer than one prompt may be.
        let hasTurns = waiting.drop { $0.role != .user }.contains { $0.role == .assistant }
        if let limit = loaded.facts.positions, new > limit, !hasTurns {
            throw H2OSessionError.promptTooLong(tokens: new, atMost: limit)
        }
    }

    /// Adds the existing part of a reply that continues to the unread tokens. If the prompt begins
    /// a thought, first ends the thought.
    ///
    /// - Parameter index: the reply's index in the transcript
    private func readBeginning(of reply: H2OMessage?, at index: Int) {
        guard let reply, let unread = state?.unread else { return }
        let tokenizer = loaded.context.tokenizer
        let prompt = tokenizer.decode(
            tokenIds: unread.suffix(PromptFormat.promptEnd), skipSpecialTokens: false)
        let decoder = ReplyDecoder(
            loaded.context.configuration, tokenizer: tokenizer, tools: [], prompt: prompt)
        let end = decoder.isThinking ? "\n</think>\n\n" : ""
        let mark = tokenizer.encode(text: end, addSpecialTokens: false)
        head?.state.unread += tokenizer.encode(text: end + reply.text, addSpecialTokens: false)
        let begin = (state?.read.count ?? 0) + unread.count + mark.count
        head?.state.texts[index] = begin ..< begin
    }

    /// Ends a turn of the model: removes its thoughts from the caches, if later turns are without
    /// them, and keeps a snapshot.
    private func endTurn() async {
        // This is not possible in the background; the next turn then removes the thoughts.
        if !loaded.platform.background.isClosed { try? await dropThoughts() }
        await keepSnapshot()
    }

    /// Releases the snapshot that was kept in case the reply begins with thoughts.
    func releaseBeforeThoughts() {
        guard !hasThoughts, let begun = beforeThoughts else { return }
        snapshots.remove(at: begun.head)
        beforeThoughts = nil
    }

    /// Returns to the beginning of the last turn's thoughts, or to the nearest snapshot before it.
    /// The tokens after it are read again with the next message. Without a snapshot, the thoughts
    /// stay.
    private func dropThoughts() async throws {
        if hasThoughts, let begun = beforeThoughts,
            let head = try await onGPU({ snapshots.nearest(to: begun) })
        {
            goOn(from: head)
        }
        (beforeThoughts, hasThoughts) = (nil, false)
    }

    /// Continues from the snapshot with most of the transcript's messages. Without a snapshot, the
    /// whole transcript must be read.
    private func returnTo(_ chain: TranscriptChain) async throws {
        leave()
        let nearest = try await onGPU {
            snapshots.nearest(to: chain)
        }
        if let nearest { goOn(from: nearest) }
    }

    /// Begins with the caches or the snapshot that have read most of the tokens, with the prepared
    /// caches of the system prompt, or with empty caches.
    func begin(_ opening: PromptFormat.Opening, at chain: TranscriptChain.Head) async throws {
        let tokens = opening.tokens
        if let state, state.pinned == opening.pinned, state.read.count < tokens.count,
            state.read.begins(tokens)
        {
            head?.state.unread = Array(tokens[state.read.count...])
            return
        }
        leave()
        let nearest = try await onGPU {
            snapshots.nearest(toTokens: tokens, pinned: opening.pinned)
        }
        if let nearest {
            goOn(from: nearest)
            head?.state.chain = chain
            head?.state.unread = Array(tokens[nearest.state.read.count...])
            return
        }
        let inFiles = loaded.archiveInFiles && loaded.caches.configuration.recall != nil
        let folder = inFiles ? try ConversationFolder(in: loaded.platform.archives) : nil
        var state = ConversationState(chain: chain)
        state.unread = opening.tokens
        state.pinned = opening.pinned
        head = ConversationHead(
            state: state,
            caches: try loaded.makeCaches(pinned: opening.pinned, archive: folder?.url),
            archive: folder)
        try await beginPrepared(opening)
    }
}

extension H2OMessage {
    /// The message without its thoughts. Transcripts are compared by these messages, because chat
    /// templates and other kinds of sessions leave out the thoughts of earlier turns.
    var withoutThoughts: H2OMessage {
        var message = self
        message.thoughts = nil
        return message
    }
}

extension Conversation {
    /// Reads the beginning of a conversation before the user's next message: instructions, tools
    /// and the messages so far. Also compiles the grammar of the reply's schema. The reply to that
    /// message then reads only the message. Reads nothing if the caches have read a message.
    ///
    /// - Parameters:
    ///   - transcript: the messages; messages at the end that wait for a reply are not read
    ///   - progress: receives the share that was read, after each step
    /// - Throws: the same errors as ``respond(to:tools:options:emit:)``, or `CancellationError`
    package func prewarm(
        _ transcript: [H2OMessage], tools: [H2OToolDefinition] = [],
        options: H2OSession.Options = H2OSession.Options(),
        progress: @Sendable (Double, H2OMemoryReading) -> Void = { _, _ in }
    ) async throws {
        let options = try options.resolved(for: transcript + [.user("")], tools)
        try await makeGrammar(of: options)
        let waiting = transcript.reversed().prefix { $0.role == .user || $0.role == .tool }
        let earlier = Array(transcript.dropLast(waiting.count))
        guard !earlier.isEmpty || !tools.isEmpty else { return }
        try Transcript.check(earlier + [.user("a")], tools)
        let format = loaded.format(tools: tools, options: options)
        let chain = try format.chain(of: earlier)
        guard let opening = try format.beginning(earlier), !opening.tokens.isEmpty else { return }
        try await model.turns.begin()
        defer { model.turns.end() }
        guard !hasMessages else { return }
        do {
            preparedPromptProblem = nil
            try await begin(opening, at: chain.heads[0])
            head?.state.texts = [:]
            locate(earlier[...], in: opening.tokens, from: 0)
            while let state, !state.unread.isEmpty {
                let system = state.pinned.upperBound - state.read.count
                let most = min(loaded.chunk, state.unread.count)
                try await read(system > 0 ? min(most, system) : most)
                progress(Double(tokensSeen) / Double(opening.tokens.count), memory)
                // Lets other requests run between two steps.
                await Task.yield()
            }
            await keepSnapshot()
        } catch {
            leave()
            throw error
        }
    }

    /// Compiles the grammar of the options' schema. Waits for its own turn, because a new grammar
    /// would invalidate the processor of a running reply.
    private func makeGrammar(of options: H2OSession.Options) async throws {
        guard options.schema != nil else { return }
        try await model.turns.begin()
        defer { model.turns.end() }
        _ = try loaded.schemaProcessor(for: options)
    }
}

extension Conversation {
    /// Begins with the package's prepared caches, if there are any and this conversation has the
    /// same system prompt. Call this only if nothing has been read yet.
    ///
    /// - Parameter opening: the tokens of the first turn
    func beginPrepared(_ opening: PromptFormat.Opening) async throws {
        let prepared: PreparedPrompt
        switch loaded.prepared {
        case nil: return
        case .failure(let problem):
            preparedPromptProblem = problem
            return
        case .success(let prompt): prepared = prompt
        }
        preparedPromptProblem = prepared.problem(
            with: opening.tokens, pinned: opening.pinned, made: caches)
        guard preparedPromptProblem == nil else { return }
        do {
            let copies = try await onGPU { try prepared.copies(for: caches) }
            head?.caches = copies
        } catch let error as H2OCacheError {
            preparedPromptProblem = .unreadable(error.localizedDescription)
            return
        }
        head?.state.read.append(prepared.tokens)
        head?.state.unread.removeFirst(prepared.tokens.count)
    }
}

extension Conversation {
    func goOn(from other: ConversationHead?) {
        // Releases the caches first, because they have files in the archive's folder open.
        head?.caches = []
        head = other
    }

    /// Keeps a snapshot of the conversation's present state. If this fails, the snapshot is missing,
    /// and after a change of the conversation more messages are read again.
    ///
    /// - Parameter planned: bytes of memory that the plan contains for this snapshot, so that no
    ///   other snapshot must be moved to a file now
    func keepSnapshot(planned: Int = 0) async {
        // In the background, keeps no snapshot, so that the end of a turn does not wait.
        guard let head, loaded.snapshots != .none, !loaded.platform.background.isClosed else {
            return
        }
        let snapshot = try? await onGPU {
            try ConversationSnapshot(of: head)
        }
        guard let snapshot else { return }
        snapshots.add(snapshot, planned: planned)
        await moveSnapshots(planned: planned)
    }

    /// Moves snapshots from memory to files, as long as the GPU may compute their contents. Leaving
    /// the app does not wait until they are written.
    private func moveSnapshots(all: Bool = false, planned: Int = 0) async {
        let background = loaded.platform.background
        while !background.isClosed,
            let moved = snapshots.takeExcess(allBut: all ? tokensSeen : nil, planned: planned)
        {
            let contents = try? await onGPU { try snapshots.contents(of: moved) }
            guard let contents else { continue }
            await BackgroundGuard.finishing { snapshots.write(moved, contents) }
        }
    }

    /// Creates a second conversation with the same transcript, which continues independently.
    ///
    /// - Throws: `CancellationError`, or `H2OCacheError.archive` if files of the archive have
    ///   changed
    package func fork() async throws -> Conversation {
        guard let head else { return Conversation(model: model, head: nil, snapshots: snapshots) }
        let copy = try await onGPU {
            try ConversationSnapshot(of: head).head(in: loaded.platform.archives)
        }
        return Conversation(model: model, head: copy, snapshots: snapshots)
    }
}
