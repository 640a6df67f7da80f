/// The conversations of callers whose requests do not name a conversation.
///
/// A request goes to the conversation that has read the longest beginning of its transcript. If
/// that conversation has read more than this beginning, a copy of it answers as long as there is
/// room, so that its own caller finds it unchanged. Without room, the conversation itself returns
/// to the beginning, and keeps a snapshot of its later state.
package actor ConversationPool: MemoryHolder {
    package nonisolated let model: H2OModel
    /// The most conversations at once, including those that answer a request. Each has its own
    /// caches.
    private let most: Int
    /// Conversations that no request uses, in the order of their last use. Only some of them have
    /// caches; the others repeat their steps when a request needs them.
    private var idle = [Conversation]()
    /// The number of conversations that requests use.
    private var used = 0

    package nonisolated var unownedExecutor: UnownedSerialExecutor { model.unownedExecutor }

    package init(_ model: H2OModel, keeping limit: Int = 2) {
        self.model = model
        most = max(1, limit)
        model.holders.add(self)
    }

    /// The most conversations without caches.
    private static let mostWithoutCaches = 16

    /// The idle conversations that have caches.
    private var holding: [Conversation] {
        idle.filter { conversation in conversation.assumeIsolated { $0.held != nil } }
    }

    /// The number of conversations for which there is memory. The plan contains the caches of one.
    private var limit: Int {
        guard let caches = model.loaded.plan?.caches, caches > 0,
            let room = model.loaded.snapshotRoom(taken: 0)
        else { return most }
        // Existing conversations have their memory already.
        return min(most, max(1, holding.count + used + max(0, room) / caches))
    }

    /// Releases the caches of conversations that no request uses. Their next requests repeat their
    /// steps.
    func releaseMemory() { release(all: holding.count) }

    /// Releases the caches of the conversations that were not used for the longest time.
    private func release(all count: Int) {
        for conversation in holding.prefix(count) {
            conversation.assumeIsolated { $0.releaseAllCaches() }
        }
        idle.removeFirst(max(0, idle.count - holding.count - Self.mostWithoutCaches))
    }

    /// See ``Conversation/respond(to:tools:options:emit:)``.
    package func respond(
        to transcript: [H2OMessage], tools: [H2OToolDefinition] = [],
        options: H2OSession.Options = H2OSession.Options(),
        emit: @escaping @Sendable (H2OSession.Part) -> Void = { _ in }
    ) async throws -> H2OSession.Response<String> {
        let request = try model.loaded.request(transcript, tools, options)
        return try await lend(for: request.chain) { try await $0.respond(to: request, emit: emit) }
    }

    /// Reads instructions, tools and messages before the user's next message, unless a conversation
    /// has read them.
    ///
    /// - Throws: the same errors as ``respond(to:tools:options:emit:)``
    package func prewarm(
        _ transcript: [H2OMessage], tools: [H2OToolDefinition] = [],
        options: H2OSession.Options = H2OSession.Options()
    ) async throws {
        let options = try options.resolved(for: transcript + [.user("")], tools)
        let format = model.loaded.format(tools: tools, options: options)
        let chain = try format.chain(of: transcript)
        guard best({ $0.messagesRead(of: chain) }) == nil else { return }
        try await lend(for: chain) {
            try await $0.prewarm(transcript, tools: tools, options: options)
        }
    }

    private func lend<Result: Sendable>(
        for chain: TranscriptChain, _ work: (Conversation) async throws -> Result
    ) async throws -> Result {
        let limit = limit
        let conversation = try await take(for: chain, limit)
        used += 1
        release(all: max(0, holding.count + used - limit))
        defer {
            used -= 1
            put(conversation)
        }
        return try await work(conversation)
    }

    private func take(
        for chain: TranscriptChain, _ limit: Int
    ) async throws -> Conversation {
        if let index = best({ $0.messagesRead(of: chain) }) { return idle.remove(at: index) }
        let hasRoom = holding.count + used < limit
        // A conversation that has read other messages may have read the same instructions.
        let index =
            best({ $0.snapshots.messagesRead(of: chain) })
            ?? best({ $0.hasInstructions(of: chain) ? 1 : nil })
        if let index {
            return hasRoom ? try await idle[index].fork() : idle.remove(at: index)
        }
        guard !hasRoom, let first = holding.first else { return Conversation(model: model) }
        idle.removeAll { $0 === first }
        return first
    }

    /// The index of the idle conversation with the largest number. If several have this number, the
    /// index of the conversation that was not used for the longest time.
    private func best(_ number: @Sendable (isolated Conversation) -> Int?) -> Int? {
        let numbers = idle.indices.compactMap { index in
            // This is safe, because the pool and its conversations have the same executor.
            idle[index].assumeIsolated { number($0) }.map { (index: index, number: $0) }
        }
        return numbers.max { $0.number < $1.number }?.index
    }

    private func put(_ conversation: Conversation) {
        idle.append(conversation)
        release(all: max(0, holding.count + used - limit))
    }
}

extension Conversation {
    /// Whether the caches have read the same instructions and tools. False if there are none.
    fileprivate func hasInstructions(of chain: TranscriptChain) -> Bool {
        opening == chain.heads[0] && state?.pinned.isEmpty == false
    }

    /// The number of the transcript's messages that the caches have read; nil if they have read
    /// other messages.
    fileprivate func messagesRead(of chain: TranscriptChain) -> Int? {
        guard let read = state?.chain, chain.starts(with: read) else { return nil }
        return read.count
    }
}
