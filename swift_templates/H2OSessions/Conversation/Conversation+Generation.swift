import H2OKit
import MLX
import MLXLMCommon

extension Conversation {
    /// Reads what is unread and generates until the turn ends. When it returns, nothing that it
    /// queued on the GPU is outstanding.
    ///
    /// - Parameters:
    ///   - transcript: what the reply follows
    ///   - begun: when the reply was asked for
    func generate(
        _ transcript: [H2OMessage], _ format: PromptFormat, _ options: H2OSession.Options,
        begun: Duration, _ emit: (H2OSession.Part) -> Void
    ) async throws -> H2OSession.Response {
        let recalledBefore = recalled
        let unread = state?.unread ?? []
        let end = loaded.context.tokenizer.decode(
            tokenIds: unread.suffix(Self.promptEnd), skipSpecialTokens: false)
        var reply = Reply(
            loaded.context, tools: format.tools, options: options, prompt: end,
            transcript: transcript, begun: begun)
        reply.usage.preparedPromptProblem = preparedPromptProblem
        reply.usage.cachedTokens = tokensSeen
        reply.usage.readTokens = unread.count
        reply.usage.promptTokens = tokensSeen + unread.count
        let begin = try reply.canThink && format.dropsThoughts() ? format.replyBegin() : 0
        reply.usage.stop = try await generate(&reply, begin, options, emit)
        reply.finish().forEach(emit)
        if !reply.response.toolCalls.isEmpty, reply.usage.stop == .endOfTurn {
            reply.usage.stop = .toolCalls
        }
        reply.usage.recalled = recalled?.since(recalledBefore)
        reply.usage.duration = loaded.platform.elapsed() - begun
        emit(.usage(reply.usage))
        var response = reply.response
        response.usage = reply.usage
        return response
    }

    /// Tokens at the end of a prompt that may begin a thought.
    private static let promptEnd = 16

    /// - Parameter begin: how many tokens at the end of the prompt only begin the reply, if its
    ///   thoughts will be taken back; 0 if not
    /// - Returns: why the reply ended
    private func generate(
        _ reply: inout Reply, _ begin: Int, _ options: H2OSession.Options,
        _ emit: (H2OSession.Part) -> Void
    ) async throws -> H2OSession.Stop {
        defer { loaded.platform.background.drain() }
        do {
            try await read()
            if begin > 0 { try await readBeforeThoughts(begin) }
            return try await write(&reply, options, emit)
        } catch is CancellationError {
            return .cancelled
        }
    }

    /// Reads all unread tokens except the last chunk into the caches, one chunk per step. A
    /// chunk ends with the system prompt, wherever the prompt ends; the last chunk has all
    /// tokens that ask what to recall.
    private func read() async throws {
        let asking = min(
            loaded.caches.configuration.recall?.ask ?? 0, loaded.promptChunk)
        while let state {
            let system = state.pinned.upperBound - state.read.count
            let rest = state.unread.count
            guard rest > loaded.promptChunk || (system > 0 && system < rest) else { return }
            let most = min(loaded.promptChunk, system > 0 ? system : rest - asking)
            try await read(most)
            if most == system { await keepSnapshot() }
        }
    }

    /// Reads all but the begin of the reply, keeps a snapshot, and reads on: token by token,
    /// so that what a recall brought back stays.
    private func readBeforeThoughts(_ begin: Int) async throws {
        let count = (state?.unread.count ?? 0) - begin
        if count > 0 { try await read(count) }
        if beforeThoughts == nil, let head {
            beforeThoughts = try await loaded.platform.background.withGPU {
                try ConversationSnapshot(of: head)
            }
        }
        for _ in 1 ..< begin { try await read(1) }
    }

    func read(_ count: Int) async throws {
        guard let tokens = state?.unread.prefix(count) else { return }
        try await loaded.platform.background.withGPU {
            let input = LMInput.Text(tokens: MLXArray(tokens.map { Int32($0) }, [1, count]))
            _ = loaded.context.model(input, cache: caches, state: nil)
            eval(caches.flatMap { $0.innerState() })
        }
        state?.read.append(tokens)
        state?.unread.removeFirst(count)
    }

    /// Generates the reply, one token per step.
    private func write(
        _ reply: inout Reply, _ options: H2OSession.Options, _ emit: (H2OSession.Part) -> Void
    ) async throws -> H2OSession.Stop {
        let background = loaded.platform.background
        let stops = loaded.stops.union(reply.stopTokens)
        var loop = try await startLoop(options)
        while reply.usage.generatedTokens < options.maxTokens ?? .max {
            let token = try await background.withGPU { loop.next() }
            if let failure = loop.failure { throw failure }
            state?.read.append([token])
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
            if reply.isStopped { return .stopString }
            await Task.yield()
        }
        return .length
    }

    private func startLoop(_ options: H2OSession.Options) async throws -> TokenLoop {
        let parameters = options.sampling.parameters(defaults: loaded.facts.sampling)
        let processors: [(any LogitProcessor)?] = [
            parameters.processor(), try loaded.schemaProcessor(for: options),
        ]
        let unread = state?.unread ?? []
        let loop = try await loaded.platform.background.withGPU {
            TokenLoop(
                reading: unread, loaded.context.model, caches: caches,
                sampler: parameters.sampler(),
                processors: processors.compactMap { $0 })
        }
        state?.read.append(unread)
        state?.unread = []
        return loop
    }
}
