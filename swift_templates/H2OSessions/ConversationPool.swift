/// The conversations of callers that do not say which one a transcript belongs to.
///
/// A request goes to the conversation that has read the most of its transcript's beginning. One
/// that would have to go back for it does so as a copy, as long as there is room, so that who
/// went on with it finds it as it was. Without room it goes back itself, and has a snapshot of
/// where it was.
package actor ConversationPool {
    package nonisolated let model: H2OModel
    /// Conversations that are kept between requests. Each has caches of its own.
    private let limit: Int
    /// Those that no request uses; the one used last is the last.
    private var idle = [Conversation]()
    /// How many requests use.
    private var used = 0

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
        let options = try options.resolved(for: transcript, tools)
        let format = model.loaded.format(tools: tools, options: options)
        let chain = try format.chain(of: transcript)
        let conversation = try await take(for: chain)
        used += 1
        defer {
            used -= 1
            put(conversation)
        }
        return try await conversation.respond(
            to: transcript, tools: tools, options: options, emit: emit)
    }

    /// Reads what comes before the user's next message, unless a conversation has read it.
    ///
    /// - Throws: what ``respond(to:tools:options:emit:)`` throws
    package func prewarm(
        _ transcript: [H2OMessage], tools: [H2OToolDefinition] = [],
        options: H2OSession.Options = H2OSession.Options()
    ) async throws {
        let options = try options.resolved(for: transcript + [.user("")], tools)
        let format = model.loaded.format(tools: tools, options: options)
        let chain = try format.chain(of: transcript)
        guard best({ $0.messagesRead(of: chain) }) == nil else { return }
        let conversation = try await take(for: chain)
        used += 1
        defer {
            used -= 1
            put(conversation)
        }
        try await conversation.prewarm(transcript, tools: tools, options: options)
    }

    private func take(for chain: TranscriptChain) async throws -> Conversation {
        if let index = best({ $0.messagesRead(of: chain) }) { return idle.remove(at: index) }
        // One that has read other messages may have read the same instructions.
        guard let index = best({ $0.snapshots.messagesRead(of: chain) }) ?? idle.indices.first
        else { return Conversation(model: model) }
        guard idle.count + used < limit else { return idle.remove(at: index) }
        return try await idle[index].fork()
    }

    /// Where the largest number is; the one used longest ago of several.
    private func best(_ number: @Sendable (isolated Conversation) -> Int?) -> Int? {
        let numbers = idle.indices.compactMap { index in
            // They run where the pool runs.
            idle[index].assumeIsolated { number($0) }.map { (index: index, number: $0) }
        }
        return numbers.max { $0.number < $1.number }?.index
    }

    private func put(_ conversation: Conversation) {
        idle.append(conversation)
        idle.removeFirst(max(0, idle.count - limit))
    }
}

extension Conversation {
    /// How many of a transcript's messages the caches have read; nil if they have read others.
    fileprivate func messagesRead(of chain: TranscriptChain) -> Int? {
        guard let read = state?.chain, chain.starts(with: read) else { return nil }
        return read.count
    }
}
