import H2OKit
import MLX
import MLXLMCommon

extension Conversation {
    /// Reads the unread tokens and generates until the turn ends. When this returns, nothing that
    /// it queued on the GPU is outstanding.
    ///
    /// - Parameter isTurn: whether the model is free; if not, the reply was canceled
    func generate(
        _ request: ConversationRequest, isTurn: Bool, _ emit: (H2OSession.Part) -> Void
    ) async throws -> H2OSession.Response<String> {
        let options = request.options
        let total = state?.point.end ?? 0
        var reply = Reply(
            to: request, loaded,
            isThinking: try options.beginning == nil && request.opensThought,
            after: state?.lastTokens(Self.promptEnd) ?? [])
        reply.usage.readTokens = state?.unread.count ?? 0
        reply.usage.cachedTokens = tokensSeen
        var recalledBefore = recalled
        do {
            if !isTurn { throw CancellationError() }
            defer { loaded.platform.background.drain() }
            reply.usage.cachedTokens = try await makeCaches(toWrite: true)
            reply.usage.readTokens = total - reply.usage.cachedTokens
            recalledBefore = recalled
            try await read(request, total)
            reply.usage.stop = try await write(&reply, options, emit)
        } catch is CancellationError {
            reply.usage.stop = .cancelled
        }
        reply.usage.preparedPromptProblem = preparedPromptProblem?.localizedDescription
        try reply.finish().forEach(emit)
        noteEnd(of: reply, options)
        if !reply.response.toolCalls.isEmpty, reply.usage.stop == .endOfTurn {
            reply.usage.stop = .toolCalls
        }
        reply.usage.recalled = recalled?.since(recalledBefore)
        reply.usage.duration = loaded.platform.elapsed() - request.begun
        emit(.usage(reply.usage))
        return reply.response
    }

    /// The number of tokens before the text of a reply on which the text may depend.
    private static let promptEnd = 16

    /// Reads all unread tokens into the caches, one chunk per step. Keeps a snapshot where the system
    /// prompt ends, and one before the tokens that begin the reply if its thoughts will be removed.
    ///
    /// - Parameter total: the number of tokens of the conversation with its prompt
    private func read(_ request: ConversationRequest, _ total: Int) async throws {
        let begin = request.begin > 0 ? total - request.begin : nil
        if let begin, tokensSeen >= begin { markThoughts(at: begin, total) }
        while state?.chunks.isEmpty == false {
            try await readChunk()
            guard let state else { return }
            if state.steps.count == state.pinned.upperBound, !state.unread.isEmpty {
                var system = state
                (system.chain, system.unread, system.chunks) = (request.chain.heads[0], [], [])
                await keepSnapshot(as: system)
            }
            if state.steps.count == begin, state.beforeThoughts == nil {
                markThoughts(at: state.steps.count, total)
                await keepSnapshot(as: state, planned: loaded.plan?.thoughts ?? 0)
            }
        }
    }

    /// Notes the state to which the conversation returns if the reply has thoughts.
    private func markThoughts(at count: Int, _ total: Int) {
        guard let state, state.beforeThoughts == nil else { return }
        let ids = state.lastTokens(total - count)
        let point = ConversationPoint(
            count: count, chain: state.chain, unread: ids,
            chunks: Array(repeating: 1, count: ids.count), ended: false, isCutOff: false,
            hasThoughts: false, beforeThoughts: [])
        self.state?.beforeThoughts = point
        snapshots.add(state.at(point))
    }

    /// Releases the snapshot that was kept in case the reply begins with thoughts.
    private func releaseBeforeThoughts() {
        guard let state, !state.hasThoughts, let point = state.beforeThoughts else { return }
        snapshots.release(at: point.chain)
        self.state?.beforeThoughts = nil
    }

    /// Notes whether the reply was cut off, and whether it has thoughts.
    private func noteEnd(of reply: Reply, _ options: H2OSession.Options) {
        let response = reply.response
        if !response.thoughts.isEmpty { state?.hasThoughts = true }
        let isText =
            !response.content.isEmpty && response.toolCalls.isEmpty
            && response.malformedToolCalls.isEmpty && options.schema == nil
        let isCutOff = [.cancelled, .length].contains(response.usage.stop)
        let thinks = state?.hasThoughts ?? false
        state?.isCutOff = isText && isCutOff && !thinks
    }

    /// Reads the next chunk of the unread tokens.
    func readChunk() async throws {
        guard let state, let count = state.chunks.first else { return }
        try await compute(.read(Array(state.unread.prefix(count))))
        self.state?.readChunk()
    }

    /// Lets the model read tokens at once. Keeps the output for a single token.
    func compute(_ step: H2OTrace.Step) async throws {
        held?.output = nil
        let output = try await onGPU(isLong: step.ids.count > 1) {
            let ids = step.ids.map { Int32($0) }
            let input = LMInput.Text(tokens: MLXArray(ids, [1, ids.count]))
            let output = loaded.context.model(input, cache: caches, state: nil)
            eval(caches.flatMap { $0.innerState() })
            return ids.count == 1 ? output : nil
        }
        held?.output = output
        held?.state.steps.add(step)
    }

    /// Generates the reply, one token per step.
    private func write(
        _ reply: inout Reply, _ options: H2OSession.Options, _ emit: (H2OSession.Part) -> Void
    ) async throws -> H2OSession.Stop {
        let stops = loaded.stops.union(reply.stopTokens)
        let parameters = options.sampling.parameters(defaults: loaded.facts.sampling)
        let processors: [(any LogitProcessor)?] = [
            parameters.processor(), try loaded.schemaProcessor(for: options),
        ]
        guard let output = held?.output else { throw H2OSessionError.emptyPrompt }
        var loop = try await onGPU {
            TokenLoop(
                after: output, of: state?.steps.suffix(Self.processed) ?? [],
                loaded.context.model, caches: caches, sampler: parameters.sampler(),
                processors: processors.compactMap { $0 })
        }
        defer { if held?.output != nil { held?.output = loop.output } }
        while reply.usage.generatedTokens < options.maxTokens ?? .max {
            let token = try await onGPU { loop.next() }
            if let failure = loop.failure { throw failure }
            state?.steps.write(token)
            held?.state.steps.write(token)
            if reply.usage.generatedTokens == 0 {
                reply.usage.timeToFirstToken = loaded.platform.elapsed() - reply.begun
            }
            reply.usage.generatedTokens += 1
            if stops.contains(token) {
                state?.ended = true
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

    /// The number of the last tokens that a repetition penalty may read.
    private static let processed = 4096
}

/// Generates tokens one after the other. The loop is one step ahead: while the CPU decodes a token
/// to text, the GPU computes the next token.
///
/// ``init(after:of:_:caches:sampler:processors:)`` and ``next()`` compute, so call them in steps of
/// the background guard.
struct TokenLoop {
    private let model: any LanguageModel
    private let caches: [any KVCache]
    private let sampler: any LogitSampler
    private var processors: [any LogitProcessor]
    /// What the model returned after the last token that ``next()`` returned. Its state goes back to
    /// the model with the next token.
    private(set) var output: LMOutput
    /// `[1]`, the next token, which the sampler has chosen and the model has not read yet.
    private var upcoming: MLXArray

    /// - Parameters:
    ///   - output: of the last token, `[1, 1, vocabulary]`
    ///   - tokens: the tokens so far, for the processors
    ///   - processors: change the logits, in this order, before a token is chosen
    init(
        after output: LMOutput, of tokens: [Int], _ model: any LanguageModel,
        caches: [any KVCache], sampler: any LogitSampler, processors: [any LogitProcessor]
    ) {
        self.model = model
        self.caches = caches
        self.sampler = sampler
        self.processors = processors
        self.output = output
        upcoming = MLXArray(tokens.map { Int32($0) }, [tokens.count])
        for index in self.processors.indices { self.processors[index].prompt(upcoming) }
        choose()
    }

    /// Returns the next token. The caches have read it, or will read it before anything else.
    mutating func next() -> Int {
        let token = upcoming
        let input = LMInput.Text(tokens: token.expandedDimensions(axis: 0))
        output = model(input, cache: caches, state: output.state)
        choose()
        return token.item(Int.self)
    }

    /// The error after which the generated tokens are not valid; nil if there is none.
    var failure: H2OSessionError? {
        processors.lazy.compactMap { ($0 as? SchemaProcessor)?.failure }.first
    }

    /// Begins to compute the next token.
    private mutating func choose() {
        var logits = output.logits.squeezed(axis: 1)
        for processor in processors { logits = processor.process(logits: logits) }
        upcoming = sampler.sample(logits: logits)
        for index in processors.indices { processors[index].didSample(token: upcoming) }
        asyncEval([upcoming] + caches.flatMap { $0.innerState() })
    }
}
