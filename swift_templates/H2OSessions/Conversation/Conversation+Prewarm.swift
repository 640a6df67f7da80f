import H2OKit
import MLXLMCommon

extension Conversation {
    /// Reads what comes before the user's next message: instructions, tools and the messages so
    /// far, and makes the grammar of the reply's schema. A reply to that message then reads the
    /// message alone. Reads nothing once the caches have read a message.
    ///
    /// - Parameter transcript: as it is; messages at its end that wait for a reply are left out
    /// - Throws: what ``respond(to:tools:options:emit:)`` throws, or `CancellationError`
    package func prewarm(
        _ transcript: [H2OMessage], tools: [H2OToolDefinition] = [],
        options: H2OSession.Options = H2OSession.Options()
    ) async throws {
        let options = try options.resolved(for: transcript + [.user("")], tools)
        try await makeGrammar(of: options)
        let waiting = transcript.reversed().prefix { $0.role == .user || $0.role == .tool }
        let said = Array(transcript.dropLast(waiting.count))
        guard !said.isEmpty || !tools.isEmpty else { return }
        try Transcript.check(said + [.user("a")], tools)
        let format = loaded.format(tools: tools, options: options)
        let chain = try format.chain(of: said)
        guard let opening = try format.beginning(said), !opening.tokens.isEmpty else { return }
        try await model.turns.begin()
        defer { model.turns.end() }
        guard !hasMessages else { return }
        do {
            preparedPromptProblem = nil
            try await begin(opening, at: chain.heads[0])
            while let state, !state.unread.isEmpty {
                let system = state.pinned.upperBound - state.read.count
                let most = min(loaded.promptChunk, state.unread.count)
                try await read(system > 0 ? min(most, system) : most)
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
