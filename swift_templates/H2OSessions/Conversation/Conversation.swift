import Foundation
import H2OKit
import MLX
import MLXLMCommon

/// A transcript that a model continues, and the caches that have read it.
///
/// All kinds of sessions stand on it. Each asks with its whole transcript; what the caches have
/// read already is not read again.
package actor Conversation: MemoryHolder {
    nonisolated let model: H2OModel

    package nonisolated var unownedExecutor: UnownedSerialExecutor { model.unownedExecutor }

    /// Empty before the first reply.
    var caches = [any KVCache]()
    /// Where the caches' archives are; nil for memory.
    var archive: ConversationFolder?
    /// nil before the first reply.
    var state: ConversationState?
    /// What the messages that were read last depend on.
    var opening: TranscriptChain.Head?
    /// To which it can return.
    package var snapshots: SnapshotStore
    /// Why this reply reads the system prompt although the package has its caches.
    var preparedPromptProblem: PreparedPromptProblem?
    /// The transcript before the thoughts of this turn, if the template leaves them out of later
    /// turns. A snapshot has it.
    var beforeThoughts: TranscriptChain?
    /// Whether there are thoughts after that.
    private var hasThoughts = false
    private var kept = H2OKeptPositions([])

    package init(model: H2OModel) {
        self.model = model
        snapshots = model.loaded.makeSnapshots()
        model.holders.add(self)
    }

    /// One that goes on from the caches of another, and can return to where that could.
    init(model: H2OModel, head: ConversationHead?, snapshots: SnapshotStore) {
        self.model = model
        self.snapshots = snapshots
        (caches, archive, state) = (head?.caches ?? [], head?.archive, head?.state)
        model.holders.add(self)
    }

    /// Moves snapshots to files, or forgets them where that would take the GPU.
    func releaseMemory() async {
        await moveSnapshots(all: true)
        snapshots.releaseMemory()
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
                try await place(transcript, chain, format, goesOn: options.beginning != nil)
                readBeginning(of: options.beginning, at: transcript.count)
            } catch is CancellationError {
                return canceled(begun, emit)
            }
            let response = try await generate(
                transcript, chain, format, options, begun: begun, emit)
            chain.append(response.message(after: options.beginning).withoutThoughts)
            state?.chain = chain.head
            hasThoughts = hasThoughts || !response.thoughts.isEmpty
            let isOver = response.toolCalls.isEmpty
            // In a task of its own: a reply that was canceled ends as others do.
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
        var response = H2OSession.Response()
        response.usage.duration = loaded.platform.elapsed() - begun
        response.usage.stop = .cancelled
        emit(.usage(response.usage))
        return response
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
                let now = try? await onGPU({ H2OKeptPositions(caches) })
            {
                kept = now
            }
            return kept
        }
    }

    nonisolated var loaded: LoadedModel { model.loaded }

    /// Does a step of work on the GPU, once the app may use it.
    ///
    /// - Throws: ``H2OSessionError/inBackground``, `CancellationError`, or an error of the work
    func onGPU<Result>(isLong: Bool = false, _ work: () throws -> Result) async throws -> Result {
        do {
            return try await loaded.platform.background.withGPU(isLong: isLong, work)
        } catch is InBackgroundError {
            throw H2OSessionError.inBackground
        }
    }

    /// Whether the caches have read a message, and not only what comes before the first.
    var hasMessages: Bool { state.map { $0.chain.count > 0 } ?? false }

    /// What recall did in this conversation; nil without it.
    var recalled: H2ORecallStatistics? {
        H2ORecallStatistics(caches.evicting)
    }

    /// Brings caches and unread tokens to the end of the transcript.
    ///
    /// - Parameter goesOn: whether a reply goes on. What begins it may be another text than when
    ///   it was cut, as where it thought, so the last message is read again
    private func place(
        _ transcript: [H2OMessage], _ chain: TranscriptChain, _ format: PromptFormat, goesOn: Bool
    ) async throws {
        let target = goesOn ? chain.beforeLast : chain
        opening = chain.heads[0]
        // What reading ahead found is the first reply's to say.
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
            self.state?.unread.removeLast(min(next.replaced, state.unread.count))
            let position = state.read.count + max(0, state.unread.count - next.replaced)
            locate(waiting, in: next.tokens, from: position)
            self.state?.unread += next.tokens
        } else {
            let opening = try format.opening(transcript)
            guard !opening.tokens.isEmpty else { throw H2OSessionError.emptyPrompt }
            try await begin(opening, at: chain.head)
            state?.texts = [:]
            locate(transcript[...], in: opening.tokens, from: 0)
        }
        state?.chain = chain.head
        state?.texts[transcript.count] = nil
        state?.ended = false
        let new = state?.unread.count ?? 0
        guard new > 0 else { throw H2OSessionError.emptyPrompt }
        // Turns that are read again may be longer: they became so one by one.
        let hasTurns = waiting.drop { $0.role != .user }.contains { $0.role == .assistant }
        if let limit = loaded.facts.positions, new > limit, !hasTurns {
            throw H2OSessionError.promptTooLong(tokens: new, atMost: limit)
        }
    }

    /// Lets a reply go on with what there is of it. A thought that the prompt begins is ended.
    ///
    /// - Parameter index: of the reply in the transcript
    private func readBeginning(of reply: H2OMessage?, at index: Int) {
        guard let reply, let unread = state?.unread else { return }
        let tokenizer = loaded.context.tokenizer
        let prompt = tokenizer.decode(
            tokenIds: unread.suffix(Self.promptEnd), skipSpecialTokens: false)
        let decoder = ReplyDecoder(
            loaded.context.configuration, tokenizer: tokenizer, tools: [], prompt: prompt)
        let end = decoder.isThinking ? "\n</think>\n\n" : ""
        let mark = tokenizer.encode(text: end, addSpecialTokens: false)
        state?.unread += tokenizer.encode(text: end + reply.text, addSpecialTokens: false)
        let begin = (state?.read.count ?? 0) + unread.count + mark.count
        state?.texts[index] = begin ..< begin
    }

    /// Ends a turn of the model: takes its thoughts back, if later turns are without them, and
    /// keeps a snapshot.
    private func endTurn() async {
        // In the background that waits for the next turn.
        if !loaded.platform.background.isClosed { try? await dropThoughts() }
        await keepSnapshot()
    }

    /// Lets go of the snapshot that was kept in case that the reply begins with thoughts.
    func releaseBeforeThoughts() {
        guard !hasThoughts, let begun = beforeThoughts else { return }
        snapshots.remove(at: begun.head)
        beforeThoughts = nil
    }

    /// Returns to where the thoughts of the last turn began, or as near before as a snapshot is.
    /// What follows is read again with the next message. Without a snapshot the thoughts stay.
    private func dropThoughts() async throws {
        if hasThoughts, let begun = beforeThoughts,
            let head = try await onGPU({ snapshots.nearest(to: begun) })
        {
            goOn(from: head)
        }
        (beforeThoughts, hasThoughts) = (nil, false)
    }

    /// Goes on from the snapshot with most of the transcript's messages, if there is one.
    private func returnTo(_ chain: TranscriptChain) async throws {
        leave()
        let nearest = try await onGPU {
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
        let nearest = try await onGPU {
            snapshots.nearest(toTokens: tokens, pinned: opening.pinned)
        }
        if let nearest {
            goOn(from: nearest)
            state?.chain = head
            state?.unread = Array(tokens[nearest.state.read.count...])
            return
        }
        let inFiles = loaded.archiveInFiles && loaded.caches.configuration.recall != nil
        let folder = inFiles ? try ConversationFolder(in: loaded.platform.archives) : nil
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

extension Conversation {
    /// Reads what comes before the user's next message: instructions, tools and the messages so
    /// far, and makes the grammar of the reply's schema. A reply to that message then reads the
    /// message alone. Reads nothing once the caches have read a message.
    ///
    /// - Parameters:
    ///   - transcript: as it is; messages at its end that wait for a reply are left out
    ///   - progress: gets the share that was read, after each step
    /// - Throws: what ``respond(to:tools:options:emit:)`` throws, or `CancellationError`
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
            state?.texts = [:]
            locate(earlier[...], in: opening.tokens, from: 0)
            while let state, !state.unread.isEmpty {
                let system = state.pinned.upperBound - state.read.count
                let most = min(loaded.chunk, state.unread.count)
                try await read(system > 0 ? min(most, system) : most)
                progress(Double(tokensSeen) / Double(opening.tokens.count), memory)
                // Others may ask for something meanwhile.
                await Task.yield()
            }
            await keepSnapshot()
        } catch {
            leave()
            throw error
        }
    }
    /// In a turn of its own: the processor of a reply that is generated would not go on.
    private func makeGrammar(of options: H2OSession.Options) async throws {
        guard options.schema != nil else { return }
        try await model.turns.begin()
        defer { model.turns.end() }
        _ = try loaded.schemaProcessor(for: options)
    }
}

extension Conversation {
    /// Begins after the system prompt that the package was made with, if there is one and this
    /// conversation has the same. Nothing was read so far.
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
            caches = try await onGPU {
                try prepared.copies(for: caches)
            }
        } catch let error as H2OCacheError {
            preparedPromptProblem = .unreadable(error.localizedDescription)
            return
        }
        state?.read.append(prepared.tokens)
        state?.unread.removeFirst(prepared.tokens.count)
    }
}

extension Conversation {
    /// What it goes on from; nil before the first reply.
    var head: ConversationHead? {
        state.map { ConversationHead(state: $0, caches: caches, archive: archive) }
    }

    func goOn(from head: ConversationHead) {
        // The caches first: they have files of the archive's folder open.
        (caches, archive, state) = (head.caches, head.archive, head.state)
    }

    /// Keeps the conversation as it is now, so that it can return here. Where that fails there is
    /// a snapshot less, and more is read again after a change.
    ///
    /// - Parameter planned: bytes that the plan has for it, so that no file needs to be written now
    func keepSnapshot(planned: Int = 0) async {
        // The end of a turn does not wait until the app is in the foreground again.
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

    /// Moves snapshots from memory to files, as long as the GPU may compute what these have.
    /// Leaving the app does not wait until they are written.
    private func moveSnapshots(all: Bool = false, planned: Int = 0) async {
        let background = loaded.platform.background
        while !background.isClosed,
            let moved = snapshots.takeExcess(allBut: all ? tokensSeen : nil, planned: planned)
        {
            let contents = try? await onGPU { try snapshots.contents(of: moved) }
            guard let contents = contents ?? nil else { continue }
            await BackgroundGuard.finishing { snapshots.write(moved, contents) }
        }
    }

    /// Another conversation that goes on from the same transcript, by itself.
    ///
    /// - Throws: `CancellationError`, or `H2OCacheError.archive` where files of the archive
    ///   are not as they were written
    package func fork() async throws -> Conversation {
        guard let head else { return Conversation(model: model, head: nil, snapshots: snapshots) }
        let other = try await onGPU {
            try ConversationSnapshot(of: head).head(in: loaded.platform.archives)
        }
        return Conversation(model: model, head: other, snapshots: snapshots)
    }
}
