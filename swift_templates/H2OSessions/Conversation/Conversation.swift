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

    /// The state from which the conversation continues; nil until something is to be read.
    var state: ConversationState?
    /// The caches that exist, and what they have read. They may be of another state; then the next
    /// reply makes the caches of its own state.
    var held: ConversationHead?
    /// The digest of the instructions, tools and options with which the last messages were read.
    var opening: TranscriptChain.Head?
    /// Earlier states to which the conversation can return.
    package var snapshots: SnapshotStore
    /// Why this reply reads the system prompt although the package contains its caches.
    var preparedPromptProblem: PreparedPromptProblem?

    /// - Parameters:
    ///   - state: the state from which it continues
    ///   - held: the caches of this state; nil to make them
    ///   - snapshots: those of another conversation, to which it can return
    package init(
        model: H2OModel, state: ConversationState? = nil, held: ConversationHead? = nil,
        snapshots: SnapshotStore? = nil
    ) {
        self.model = model
        self.state = state
        self.held = held
        self.snapshots = snapshots ?? model.loaded.makeSnapshots()
        model.holders.add(self)
    }

    /// Moves snapshots to files, or deletes them if the GPU cannot be used to move them.
    func releaseMemory() async {
        await moveSnapshots(all: true)
        snapshots.releaseMemory()
    }

    /// Generates the model's reply to the last message. It ends with the model's turn, or when the
    /// task is canceled; what the model has said since the user's message then stays in the
    /// conversation.
    ///
    /// - Parameters:
    ///   - transcript: all messages. In the next call, the response's
    ///     ``H2OSession/Response/message`` follows them.
    ///   - emit: receives parts as they are generated; the last one is the usage
    /// - Throws: ``H2OSessionError``, an `MLXError`, the chat template's own error, or
    ///   `CancellationError` if the task was canceled before the model said anything. The
    ///   conversation is then in the same state as before.
    package func respond(
        to transcript: [H2OMessage], tools: [H2OToolDefinition] = [],
        options: H2OSession.Options = H2OSession.Options(),
        emit: @Sendable (H2OSession.Part) -> Void = { _ in }
    ) async throws -> H2OSession.Response<String> {
        try await respond(to: loaded.request(transcript, tools, options), emit: emit)
    }

    func respond(
        to request: ConversationRequest, emit: @Sendable (H2OSession.Part) -> Void
    ) async throws -> H2OSession.Response<String> {
        let before = (state, opening)
        do {
            if loaded.script == nil { try place(request) }
            // Only a cancellation ends the wait for the turn. Then nothing is read.
            let isTurn = (try? await model.turns.begin()) != nil
            defer { if isTurn { model.turns.end() } }
            let response = try await answer(request, isTurn: isTurn, emit)
            if response.usage.stop == .cancelled, !request.hasAnswer(with: response) {
                throw CancellationError()
            }
            state?.chain = request.chain(with: response).head
            let isOver = response.toolCalls.isEmpty
            // This is a separate task, so that a canceled reply also ends normally.
            if isTurn {
                await Task {
                    if isOver { await endTurn() } else { await keepSnapshot() }
                }.value
            }
            return response
        } catch {
            // After a cancellation, the caches still have exactly the steps that they note.
            if !(error is CancellationError) { releaseCaches() }
            (state, opening) = before
            throw error
        }
    }

    private func answer(
        _ request: ConversationRequest, isTurn: Bool, _ emit: @Sendable (H2OSession.Part) -> Void
    ) async throws -> H2OSession.Response<String> {
        guard let script = loaded.script else {
            return try await generate(request, isTurn: isTurn, emit)
        }
        return try await script.respond(
            to: request, isTurn: isTurn, elapsed: loaded.platform.elapsed, emit)
    }

    /// Forgets the transcript.
    package func forget() {
        releaseCaches()
        state = nil
        snapshots.removeAll()
    }

    /// Releases the caches. The next reply makes them again.
    func releaseCaches() {
        // The caches first, because they have files in the archive's folder open.
        held?.caches = []
        held = nil
    }

    /// The present state with its caches; nil if its caches do not exist.
    var head: ConversationHead? {
        guard let state, var held, held.has(state) else { return nil }
        held.state = state
        return held
    }

    package var caches: [any KVCache] { held?.caches ?? [] }

    /// What made the present caches.
    package var trace: H2OTrace { H2OTrace(steps: state?.steps.steps() ?? []) }

    /// Tokens that the caches have read; most of them may have been evicted.
    package var tokensSeen: Int { state?.steps.count ?? 0 }

    nonisolated var loaded: LoadedModel { model.loaded }

    /// Runs a step of work on the GPU, when the app may use it.
    ///
    /// - Throws: `InBackgroundError`, `CancellationError`, or an error of the work
    func onGPU<Result>(isLong: Bool = false, _ work: () throws -> Result) async throws -> Result {
        try await loaded.platform.background.withGPU(isLong: isLong, work)
    }

    /// Whether the caches have read a message, and not only instructions and tools.
    var hasMessages: Bool { state.map { $0.chain.count > 0 } ?? false }

    /// The figures of recall in this conversation; nil without recall.
    var recalled: H2ORecallStatistics? {
        H2ORecallStatistics(caches.evicting)
    }

    /// Brings the state to the end of the transcript, with the unread tokens and their chunks.
    /// Computes nothing on the GPU.
    private func place(_ request: ConversationRequest) throws {
        let (transcript, chain, format) = (request.transcript, request.chain, request.format)
        opening = chain.heads[0]
        // The first reply reports a problem that prewarming found.
        if state == nil || hasMessages { preparedPromptProblem = nil }
        if let state, state.isCutOff, let reply = request.options.beginning,
            state.chain == request.chain(with: reply).head
        {
            // The caches end with the reply, so the model writes on.
            self.state?.chain = chain.head
            return
        }
        // The template may render the beginning of a reply that continues differently, for example
        // without its thoughts. So the last message is read again.
        let target = request.options.beginning == nil ? chain : chain.beforeLast
        let isAnswer = state.map { transcript.dropFirst($0.chain.count).first?.role == .tool }
        if isAnswer != true { dropThoughts() }
        if state.map({ target.starts(with: $0.chain) }) != true { returnTo(target) }
        if let state, state.chain == chain.head, try format.beginsOtherwise(than: state.unread) {
            returnTo(chain.beforeLast)
        }
        var waiting = transcript[...]
        var cuts = PromptCuts(chunk: loaded.chunk, alone: max(1, request.begin))
        if let state, hasMessages {
            waiting = waiting.dropFirst(state.chain.count)
            let next = try format.following(
                state.chain.count, of: transcript,
                stop: state.ended ? state.lastTokens(1).last : nil)
            self.state?.removeUnread(next.replaced)
            self.state?.unread += next.tokens
        } else {
            let opening = try format.opening(transcript)
            guard !opening.tokens.isEmpty else { throw H2OSessionError.emptyPrompt }
            begin(opening, at: chain.head)
            cuts.ends = ends(of: opening, warmOpening(transcript, format))
        }
        state?.chain = chain.head
        state?.ended = false
        state?.isCutOff = false
        let new = state?.unread.count ?? 0
        guard new > 0 else { throw H2OSessionError.emptyPrompt }
        // Turns that were read one by one may together be longer than one prompt may be.
        let hasTurns = waiting.drop { $0.role != .user }.contains { $0.role == .assistant }
        if let limit = loaded.facts.positions, new > limit, !hasTurns {
            throw H2OSessionError.promptTooLong(tokens: new, atMost: limit)
        }
        if let reply = request.options.beginning { try readBeginning(of: reply, request) }
        state?.cutUnread(cuts)
    }

    /// Adds the existing part of a reply that continues to the unread tokens. If the prompt begins
    /// a thought, first ends the thought.
    ///
    /// - Parameter request: the request for more of the reply
    private func readBeginning(of reply: H2OMessage, _ request: ConversationRequest) throws {
        let tokenizer = loaded.context.tokenizer
        let marks = try request.opensThought ? request.format.marks : nil
        let end = marks.map { "\n\($0.end)\n\n" } ?? ""
        state?.unread += tokenizer.encode(text: end + reply.text, addSpecialTokens: false)
    }

    /// Ends a turn of the model: removes its thoughts from the caches, if later turns are without
    /// them, and keeps a snapshot.
    private func endTurn() async {
        dropThoughts()
        // Repeating steps can wait for the next turn.
        if let state, head == nil, snapshots.hasSnapshot(of: state.steps),
            !loaded.platform.background.isClosed
        {
            _ = try? await makeCaches()
        }
        await keepSnapshot()
    }

    /// Returns to the beginning of the last turn's thoughts. The tokens after it are read again with
    /// the next message.
    private func dropThoughts() {
        if let state, state.hasThoughts, let point = state.beforeThoughts {
            self.state = state.at(point)
        }
        state?.beforeThoughts = nil
        state?.hasThoughts = false
    }

    /// Returns to the earlier state with most of the transcript's messages. Without one, the whole
    /// transcript must be read.
    private func returnTo(_ chain: TranscriptChain) {
        state = snapshots.state(before: chain)
    }

    /// Begins with no tokens, or with a state of other messages that has read the same tokens.
    func begin(_ opening: PromptFormat.Opening, at chain: TranscriptChain.Head) {
        if var other = snapshots.state(beforeTokens: opening.tokens, pinned: opening.pinned) {
            other.chain = chain
            (other.unread, other.chunks) = (Array(opening.tokens[other.steps.count...]), [])
            (other.beforeThoughts, other.hasThoughts) = (nil, false)
            state = other
            return
        }
        var new = ConversationState(chain: chain)
        (new.unread, new.pinned) = (opening.tokens, opening.pinned)
        state = new
    }

    /// What prewarming reads before the waiting messages, if it is more than the system prompt.
    private func warmOpening(
        _ transcript: [H2OMessage], _ format: PromptFormat
    ) -> PromptFormat.Opening? {
        let earlier = transcript.beforeWaiting
        guard earlier.contains(where: { $0.role != .system }),
            (try? Transcript.check(earlier + [.user("a")], format.tools)) != nil
        else { return nil }
        return try? format.beginning(earlier)
    }

    /// Where chunks of a conversation's first tokens end: where pinned ranges do that begin at 0, and
    /// where prewarming stops.
    func ends(of opening: PromptFormat.Opening, _ warm: PromptFormat.Opening?) -> [Int] {
        let pinned = loaded.caches.configuration.pinned + [opening.pinned]
        var ends = pinned.filter { $0.lowerBound == 0 }.map(\.upperBound)
        if let warm, opening.tokens.starts(with: warm.tokens) { ends.append(warm.tokens.count) }
        return ends
    }
}

extension [H2OMessage] {
    /// The messages without those at the end that wait for a reply.
    fileprivate var beforeWaiting: [H2OMessage] {
        Array(dropLast(reversed().prefix { $0.role == .user || $0.role == .tool }.count))
    }
}

extension H2OMessage {
    /// The message without its thoughts and its mark. Transcripts are compared by these messages,
    /// because chat templates and other kinds of sessions leave out the thoughts of earlier turns,
    /// and templates do not write the mark.
    var compared: H2OMessage {
        var message = self
        (message.thoughts, message.isCutOff) = (nil, false)
        return message
    }
}

extension Conversation {
    /// Reads the beginning of a conversation before the user's next message: instructions, tools
    /// and the messages so far. Also compiles the grammar of the reply's schema. The reply to that
    /// message then reads only the message. Reads nothing if the caches have read a message.
    ///
    /// - Parameter transcript: the messages; those at the end that wait for a reply are not read
    /// - Throws: the same errors as ``respond(to:tools:options:emit:)``, or `CancellationError`
    package func prewarm(
        _ transcript: [H2OMessage], tools: [H2OToolDefinition] = [],
        options: H2OSession.Options = H2OSession.Options()
    ) async throws {
        guard loaded.script == nil else { return }
        let options = try options.resolved(for: transcript + [.user("")], tools)
        try await makeGrammar(of: options)
        let earlier = transcript.beforeWaiting
        guard !earlier.isEmpty || !tools.isEmpty else { return }
        try Transcript.check(earlier + [.user("a")], tools)
        let format = loaded.format(tools: tools, options: options)
        let chain = try format.chain(of: earlier)
        guard let opening = try format.beginning(earlier), !opening.tokens.isEmpty else { return }
        try await model.turns.begin()
        defer { model.turns.end() }
        guard !hasMessages else { return }
        preparedPromptProblem = nil
        state = nil
        begin(opening, at: chain.heads[0])
        state?.cutUnread(
            PromptCuts(chunk: loaded.chunk, ends: ends(of: opening, nil), alone: 0))
        do {
            try await makeCaches()
            while let state, !state.chunks.isEmpty {
                try await readChunk()
                // Lets other requests run between two steps.
                await Task.yield()
            }
            await keepSnapshot()
        } catch {
            releaseCaches()
            state = nil
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
    /// Makes the caches of the present state, unless they exist. Begins with the caches that have
    /// made the most of its steps: the held ones, a snapshot, the package's prepared caches, or empty
    /// ones. If these have also read unread tokens in the same chunks, the state goes on from there.
    /// Other steps are repeated.
    ///
    /// - Parameter toWrite: whether a reply follows, which begins with the output of the last step if
    ///   no token is unread
    /// - Returns: the number of tokens that were not read now
    @discardableResult
    func makeCaches(toWrite: Bool = false) async throws -> Int {
        guard let state else { return 0 }
        let needsOutput = toWrite && state.unread.isEmpty
        if needsOutput, let held, held.has(state), held.output != nil { return state.steps.count }
        let all = needsOutput ? state.steps.beforeLast : state.allSteps
        if held.map({ $0.state.pinned == state.pinned && all.starts(with: $0.state.steps) }) != true {
            releaseCaches()
        }
        if held.map({ $0.state.steps.count < state.steps.count }) != false {
            try await beginCaches(of: state, within: all)
        }
        let cached = held?.state.steps.count ?? 0
        for step in state.steps.steps(from: min(cached, state.steps.count)) {
            try await compute(step)
        }
        while let state = self.state, let steps = held?.state.steps,
            state.steps.count < steps.count
        {
            self.state?.readChunk()
        }
        return cached
    }

    /// Holds the caches with the most of the steps: those held, of a snapshot, prepared or empty.
    private func beginCaches(of state: ConversationState, within all: CacheSteps) async throws {
        let nearest = try await onGPU { snapshots.nearest(within: all, pinned: state.pinned) }
        if let nearest, nearest.state.steps.count > held?.state.steps.count ?? -1 {
            releaseCaches()
            held = nearest
        }
        guard held == nil else { return }
        let inFiles = loaded.hasArchiveFiles
        let folder = inFiles ? try ConversationFolder(in: loaded.platform.archives) : nil
        var empty = ConversationState(chain: state.chain)
        empty.pinned = state.pinned
        var head = ConversationHead(
            state: empty,
            caches: try loaded.makeCaches(pinned: state.pinned, archive: folder?.url),
            archive: folder)
        if let prepared = try await preparedCaches(for: head, within: all) {
            head.state.steps = prepared.steps
            head.caches = prepared.caches
        }
        held = head
    }

    /// The package's prepared caches, if there are any and this conversation has the same system
    /// prompt; nil otherwise.
    private func preparedCaches(
        for head: ConversationHead, within all: CacheSteps
    ) async throws -> (steps: CacheSteps, caches: [any KVCache])? {
        let prepared: PreparedPrompt
        switch loaded.prepared {
        case nil: return nil
        case _ where loaded.adapter?.digest != loaded.ownAdapter?.digest:
            preparedPromptProblem = .otherModel
            return nil
        case .failure(let problem):
            preparedPromptProblem = problem
            return nil
        case .success(let prompt): prepared = prompt
        }
        preparedPromptProblem = prepared.problem(
            with: all.ids, pinned: head.state.pinned, chunk: loaded.chunk, made: head.caches)
        guard preparedPromptProblem == nil else { return nil }
        let cuts = PromptCuts(chunk: loaded.chunk, alone: 0)
        let steps = CacheSteps(reading: prepared.tokens, cuts.lengths(from: 0, to: prepared.tokens.count))
        guard all.starts(with: steps) else {
            preparedPromptProblem = .otherPrompt
            return nil
        }
        do {
            return (steps, try await onGPU { try prepared.copies(for: head.caches) })
        } catch let error as H2OCacheError {
            preparedPromptProblem = .unreadable(error.localizedDescription)
            return nil
        }
    }
}

extension ConversationHead {
    /// Whether the caches are those of a state.
    func has(_ other: ConversationState) -> Bool {
        state.pinned == other.pinned && state.steps == other.steps
    }
}

extension Conversation {
    /// Keeps a snapshot of the conversation's present state. If this fails, the snapshot is missing,
    /// and after a change of the conversation more messages are read again.
    ///
    /// - Parameter planned: bytes of memory that the plan contains for this snapshot, so that no
    ///   other snapshot must be moved to a file now
    func keepSnapshot(planned: Int = 0) async {
        guard let state else { return }
        if hasMessages { snapshots.add(state) }
        await keepSnapshot(as: state, planned: planned)
    }

    /// Keeps a snapshot of the present caches, if they are those of a state.
    func keepSnapshot(as state: ConversationState, planned: Int = 0) async {
        // In the background, keeps no snapshot, so that the end of a turn does not wait.
        guard var head, head.has(state), loaded.snapshots != .none,
            !loaded.platform.background.isClosed
        else { return }
        head.state = state
        let snapshot = try? await onGPU { [head] in
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
            let contents = try? await onGPU {
                try moved.snapshot.contents(identity: loaded.identity)
            }
            guard let contents else { continue }
            await BackgroundGuard.finishing { snapshots.write(moved, contents) }
        }
    }

    /// Creates a second conversation with the same transcript, which continues independently.
    ///
    /// - Throws: `CancellationError`, or `H2OCacheError.archive` if files of the archive have
    ///   changed
    package func fork() async throws -> Conversation {
        var copy: ConversationHead?
        if let head {
            copy = try await onGPU {
                try ConversationSnapshot(of: head).head(in: loaded.platform.archives)
            }
        }
        return Conversation(model: model, state: state, held: copy, snapshots: snapshots)
    }

    /// Releases the caches and all snapshots. The conversation can continue: it repeats its steps.
    package func releaseAllCaches() {
        releaseCaches()
        snapshots.release()
    }
}
