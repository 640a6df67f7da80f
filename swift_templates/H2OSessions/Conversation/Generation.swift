import H2OKit
import MLX
import MLXLMCommon

extension Conversation {
    /// Reads the unread tokens and generates until the turn ends. When this returns, nothing that
    /// it queued on the GPU is outstanding.
    func generate(
        _ request: ConversationRequest, _ emit: (H2OSession.Part) -> Void
    ) async throws -> H2OSession.Response {
        let (format, options) = (request.format, request.options)
        let recalledBefore = recalled
        let unread = state?.unread ?? []
        var reply = Reply(
            to: request, loaded.context, promptEnd: unread.suffix(PromptFormat.promptEnd))
        reply.usage.preparedPromptProblem = preparedPromptProblem?.localizedDescription
        reply.usage.cachedTokens = tokensSeen
        reply.usage.readTokens = unread.count
        reply.usage.promptTokens = tokensSeen + unread.count
        let mayThink = reply.canThink && options.thinking != false
        // If the reply's thoughts will be removed: the number of tokens at the end of the prompt
        // that only begin the reply.
        let begin = try mayThink && format.dropsThoughts() ? format.replyBegin() : 0
        do {
            defer { loaded.platform.background.drain() }
            try await read()
            if begin > 0 { try await readBeforeThoughts(begin, request.chain) }
            reply.usage.stop = try await write(&reply, options, emit)
        } catch is CancellationError {
            reply.usage.stop = .cancelled
        }
        noteText(of: request.transcript.count, reply)
        reply.finish().forEach(emit)
        if !reply.response.toolCalls.isEmpty, reply.usage.stop == .endOfTurn {
            reply.usage.stop = .toolCalls
        }
        reply.usage.recalled = recalled?.since(recalledBefore)
        reply.usage.duration = loaded.platform.elapsed() - request.begun
        emit(.usage(reply.usage))
        return reply.response
    }

    /// Reads all unread tokens except the last chunk into the caches, one chunk per step. One chunk
    /// ends with the system prompt. The last chunk contains all tokens that choose what to recall.
    private func read() async throws {
        while let state {
            let asking = min(loaded.caches.configuration.recall?.ask ?? 0, loaded.chunk)
            let system = state.pinned.upperBound - state.read.count
            let rest = state.unread.count
            let chunk = loaded.chunk
            guard rest > chunk || (system > 0 && system < rest) else { return }
            let most = min(chunk, system > 0 ? system : rest - asking)
            try await read(most)
            if most == system { await keepSnapshot() }
        }
    }

    /// Reads all tokens except those that begin the reply, keeps a snapshot, and reads the rest
    /// token by token, so that the recalled rows stay.
    private func readBeforeThoughts(_ begin: Int, _ chain: TranscriptChain) async throws {
        let count = (state?.unread.count ?? 0) - begin
        if count > 0 { try await read(count) }
        if beforeThoughts == nil {
            beforeThoughts = chain
            await keepSnapshot(planned: loaded.plan?.thoughts ?? 0)
        }
        for _ in 1 ..< begin { try await read(1) }
    }

    /// Notes the positions of the reply's text among the tokens that were read.
    private func noteText(of index: Int, _ reply: Reply) {
        guard let state else { return }
        let end = state.read.count - (state.ended ? 1 : 0)
        let written = reply.usage.generatedTokens - (state.ended ? 1 : 0)
        let begin = state.texts[index]?.lowerBound ?? end - written + reply.usage.thoughtTokens
        head?.state.texts[index] = begin < end ? begin ..< end : nil
    }

    func read(_ count: Int) async throws {
        guard let tokens = state?.unread.prefix(count) else { return }
        try await onGPU(isLong: count > 1) {
            let begun = loaded.platform.elapsed()
            defer { loaded.noteChunk(of: count, took: loaded.platform.elapsed() - begun) }
            let input = LMInput.Text(tokens: MLXArray(tokens.map { Int32($0) }, [1, count]))
            _ = loaded.context.model(input, cache: caches, state: nil)
            eval(caches.flatMap { $0.innerState() })
        }
        head?.state.read.append(tokens)
        head?.state.unread.removeFirst(count)
    }

    /// Reads the rest of the prompt at once and generates the reply, one token per step.
    private func write(
        _ reply: inout Reply, _ options: H2OSession.Options, _ emit: (H2OSession.Part) -> Void
    ) async throws -> H2OSession.Stop {
        let stops = loaded.stops.union(reply.stopTokens)
        let parameters = options.sampling.parameters(defaults: loaded.facts.sampling)
        let processors: [(any LogitProcessor)?] = [
            parameters.processor(), try loaded.schemaProcessor(for: options),
        ]
        let unread = state?.unread ?? []
        var loop = try await onGPU(isLong: unread.count > 1) {
            TokenLoop(
                reading: unread, loaded.context.model, caches: caches,
                sampler: parameters.sampler(), processors: processors.compactMap { $0 })
        }
        head?.state.read.append(unread)
        head?.state.unread = []
        while reply.usage.generatedTokens < options.maxTokens ?? .max {
            let token = try await onGPU { loop.next() }
            if let failure = loop.failure { throw failure }
            head?.state.read.append([token])
            if reply.usage.generatedTokens == 0 {
                reply.usage.timeToFirstToken = loaded.platform.elapsed() - reply.begun
            }
            reply.usage.generatedTokens += 1
            if stops.contains(token) {
                head?.state.ended = true
                reply.end(with: token).forEach(emit)
                return .endOfTurn
            }
            reply.append(token).forEach(emit)
            if reply.hasAnswerWithoutThoughts { releaseBeforeThoughts() }
            if reply.isStopped { return .stopString }
            await Task.yield()
        }
        return .length
    }
}

/// Generates tokens one after the other. The loop is one step ahead: while the CPU decodes a token
/// to text, the GPU computes the next token.
///
/// ``init(reading:_:caches:sampler:processors:)`` and ``next()`` compute, so call them in steps of
/// the background guard.
struct TokenLoop {
    private let model: any LanguageModel
    private let caches: [any KVCache]
    private let sampler: any LogitSampler
    private var processors: [any LogitProcessor]
    /// State that the model receives again with the next token.
    private var state: LMOutput.State?
    /// `[1]`, the next token, which the sampler has chosen and the model has not read yet.
    private var upcoming: MLXArray

    /// Reads the last tokens of a prompt at once.
    ///
    /// - Parameters:
    ///   - tokens: at least one token
    ///   - processors: change the logits, in this order, before a token is chosen
    init(
        reading tokens: [Int], _ model: any LanguageModel, caches: [any KVCache],
        sampler: any LogitSampler, processors: [any LogitProcessor]
    ) {
        self.model = model
        self.caches = caches
        self.sampler = sampler
        self.processors = processors
        upcoming = MLXArray(tokens.map { Int32($0) }, [tokens.count])
        for index in self.processors.indices { self.processors[index].prompt(upcoming) }
        step()
    }

    /// Returns the next token. The caches have read it, or will read it before anything else.
    mutating func next() -> Int {
        let token = upcoming
        step()
        return token.item(Int.self)
    }

    /// The error after which the generated tokens are not valid; nil if there is none.
    var failure: H2OSessionError? {
        processors.lazy.compactMap { ($0 as? SchemaProcessor)?.failure }.first
    }

    /// Lets the model read the upcoming tokens, and begins to compute the token after them.
    private mutating func step() {
        let input = LMInput.Text(tokens: upcoming.expandedDimensions(axis: 0))
        let output = model(input, cache: caches, state: state)
        state = output.state
        let length = output.logits.dim(1)
        var logits = output.logits[.ellipsis, (length - 1)..., 0...].squeezed(axis: 1)
        for processor in processors { logits = processor.process(logits: logits) }
        upcoming = sampler.sample(logits: logits)
        for index in processors.indices { processors[index].didSample(token: upcoming) }
        asyncEval([upcoming] + caches.flatMap { $0.innerState() })
    }
}
