import H2OKit
import MLX
import MLXLMCommon

extension Conversation {
    /// Reads what is unread and generates until the turn ends.
    ///
    /// - Returns: why the reply ended
    func generate(
        _ reply: inout Reply, _ options: H2OSession.Options, _ emit: (H2OSession.Part) -> Void
    ) async throws -> H2OSession.Stop {
        do {
            try await read()
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
        }
    }

    private func read(_ count: Int) async throws {
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
        let stops = loaded.stops
        var iterator = try await startIterator(options)
        while let token = try await loaded.platform.background.withGPU({ iterator.next() }) {
            if reply.usage.generatedTokens == 0 {
                reply.usage.timeToFirstToken = loaded.platform.elapsed() - reply.begun
            }
            reply.usage.generatedTokens += 1
            state?.read.append([token])
            if stops.contains(token) {
                state?.ended = true
                return .endOfTurn
            }
            let text = reply.detokenizer.append(token)
            reply.text += text
            if !text.isEmpty { emit(.text(text)) }
            await Task.yield()
        }
        return .length
    }

    private func startIterator(_ options: H2OSession.Options) async throws -> TokenIterator {
        let parameters = options.sampling.parameters(defaults: H2OSampling())
        let unread = state?.unread ?? []
        let iterator = try await loaded.platform.background.withGPU {
            try TokenIterator(
                input: LMInput(tokens: MLXArray(unread.map { Int32($0) })),
                model: loaded.context.model, cache: caches, processor: parameters.processor(),
                sampler: parameters.sampler(), promptChunk: loaded.promptChunk,
                maxTokens: options.maxTokens)
        }
        state?.read.append(unread)
        state?.unread = []
        return iterator
    }
}
