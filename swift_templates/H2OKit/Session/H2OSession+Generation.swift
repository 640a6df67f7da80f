import MLX
import MLXLMCommon

extension H2OSession {
    typealias Parts = AsyncThrowingStream<H2OReplyPart, any Error>.Continuation

    /// Reads the prompt and generates until the turn ends.
    ///
    /// - Throws: see ``H2OSession/reply(to:)``
    func generate(_ prompt: String, into parts: Parts) async throws {
        try addTurn(prompt)
        var reply = Reply(
            tokenizer: context.tokenizer, begun: platform.seconds(), recalledBefore: recalled)
        reply.statistics.promptTokens = unread.count
        do {
            try await read()
            try await write(&reply, into: parts)
        } catch is CancellationError {
            reply.statistics.stop = .cancelled
        } catch {
            forget()
            throw error
        }
        reply.statistics.recall = recalled?.since(reply.recalledBefore)
        let rest = reply.text.finish()
        parts.yield(H2OReplyPart(text: rest, statistics: reply.statistics))
    }

    /// A reply that is being generated.
    private struct Reply {
        var text: ReplyText
        var statistics = H2OReplyStatistics()
        /// In seconds, by the platform's clock.
        let begun: Double
        let recalledBefore: H2ORecallStatistics?

        init(tokenizer: any Tokenizer, begun: Double, recalledBefore: H2ORecallStatistics?) {
            text = ReplyText(tokenizer: tokenizer)
            self.begun = begun
            self.recalledBefore = recalledBefore
        }
    }

    /// Appends the turn's tokens to the unread ones. Makes the caches before the first turn.
    private func addTurn(_ prompt: String) throws {
        guard !prompt.isEmpty else { throw H2OSessionError.emptyPrompt }
        if caches.isEmpty {
            let opening = try format.opening(prompt)
            guard !opening.tokens.isEmpty else { throw H2OSessionError.emptyPrompt }
            let inFiles = options.archiveInFiles && options.caches.configuration.recall != nil
            let folder = inFiles ? try platform.archives.make() : nil
            caches = try SessionCaches.make(
                options.caches, for: context.model, pinned: opening.pinned, archive: folder?.url)
            archive = folder
            unread = opening.tokens
        } else {
            unread += try format.following(prompt, ended: ended)
        }
        ended = false
    }

    /// Reads all unread tokens except the last chunk into the caches, one chunk per step. The
    /// last chunk has all tokens that ask what to recall.
    private func read() async throws {
        let longest = max(1, options.parameters.promptChunk)
        let asking = min(options.caches.configuration.recall?.ask ?? 0, longest)
        while unread.count > longest {
            let chunk = min(longest, unread.count - asking)
            try await platform.background.begin()
            defer { platform.background.end() }
            try Task.checkCancellation()
            let tokens = MLXArray(unread.prefix(chunk).map { Int32($0) }, [1, chunk])
            try withError {
                _ = context.model(LMInput.Text(tokens: tokens), cache: caches, state: nil)
                eval(caches.flatMap { $0.innerState() })
            }
            unread.removeFirst(chunk)
        }
    }

    /// Generates the reply, one token per step.
    private func write(_ reply: inout Reply, into parts: Parts) async throws {
        var iterator = try await startIterator()
        reply.statistics.prefillSeconds = platform.seconds() - reply.begun
        let first = platform.seconds()
        while let token = try await nextToken(&iterator) {
            reply.statistics.replyTokens += 1
            reply.statistics.decodeSeconds = platform.seconds() - first
            reply.statistics.recall = recalled?.since(reply.recalledBefore)
            if format.stops.contains(token) {
                ended = true
                reply.statistics.stop = .endOfTurn
                return
            }
            let text = reply.text.append(token)
            parts.yield(H2OReplyPart(text: text, statistics: reply.statistics))
            await Task.yield()
        }
        reply.statistics.stop = .length
    }

    private func startIterator() async throws -> TokenIterator {
        try await platform.background.begin()
        defer { platform.background.end() }
        try Task.checkCancellation()
        let input = LMInput(tokens: MLXArray(unread.map { Int32($0) }))
        unread = []
        return try withError {
            try TokenIterator(
                input: input, model: context.model, cache: caches,
                processor: options.parameters.processor(), sampler: options.parameters.sampler(),
                promptChunk: options.parameters.promptChunk,
                maxTokens: options.parameters.maxTokens)
        }
    }

    private func nextToken(_ iterator: inout TokenIterator) async throws -> Int? {
        try await platform.background.begin()
        defer { platform.background.end() }
        try Task.checkCancellation()
        return try withError { iterator.next() }
    }
}
