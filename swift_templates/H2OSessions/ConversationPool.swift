/// The conversations of callers that do not say which one a transcript belongs to.
///
/// A request goes to the conversation that has read the most of its transcript's beginning,
/// and to no other that is being used. One that has nothing of it makes room for a new one
/// when there are too many.
package actor ConversationPool {
    package nonisolated let model: H2OModel
    /// Conversations that are kept between requests. Each has caches of its own.
    private let limit: Int
    /// Those that no request uses; the one used last is the last.
    private var idle = [Conversation]()

    package nonisolated var unownedExecutor: UnownedSerialExecutor { model.unownedExecutor }

    package init(_ model: H2OModel, keeping limit: Int = 2) {
        self.model = model
        self.limit = max(1, limit)
    }

    /// See ``Conversation/respond(to:tools:options:emit:)``.
    package func respond(
        to transcript: [H2OMessage], tools: [H2OToolDefinition] = [],
        options: H2OSession.Options = H2OSession.Options(),
        emit: @escaping @Sendable (H2OSession.Part) -> Void = { _ in }
    ) async throws -> H2OSession.Response {
        let chain = model.loaded.format(tools: tools, options: options).chain(of: transcript)
        let conversation = take(for: chain)
        defer { put(conversation) }
        return try await conversation.respond(
            to: transcript, tools: tools, options: options, emit: emit)
    }

    private func take(for chain: TranscriptChain) -> Conversation {
        let known = idle.map { conversation in
            // They run where the pool runs.
            conversation.assumeIsolated { $0.messagesKnown(of: chain) } ?? -1
        }
        if let most = known.max(), most >= 0, let index = known.firstIndex(of: most) {
            return idle.remove(at: index)
        }
        return Conversation(model: model)
    }

    private func put(_ conversation: Conversation) {
        idle.append(conversation)
        idle.removeFirst(max(0, idle.count - limit))
    }
}

extension Conversation {
    /// How many of a transcript's messages the caches have read; nil if they have read others.
    func messagesKnown(of chain: TranscriptChain) -> Int? {
        guard let read = state?.chain, chain.starts(with: read) else { return nil }
        return read.count
    }
}
