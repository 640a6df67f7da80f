/// The conversations of callers that do not say which one a transcript belongs to.
///
/// A request goes to the conversation that has read the most of its transcript's beginning. One
/// that would have to go back for it does so as a copy, as long as there is room, so that who
/// went on with it finds it as it was. Without room it goes back itself, and has a snapshot of
/// where it was.
package actor ConversationPool: MemoryHolder {
    package nonisolated let model: H2OModel
    /// Conversations at once, those at work included. Each has caches of its own.
    private let most: Int
    /// Those that no request uses; the one used last is the last.
    private var idle = [Conversation]()
    /// How many requests use.
    private var used = 0

    package nonisolated var unownedExecutor: UnownedSerialExecutor { model.unownedExecutor }

    package init(_ model: H2OModel, keeping limit: Int = 2) {
        self.model = model
        most = max(1, limit)
        model.holders.add(self)
    }

    /// As many as there is memory for: the plan has the caches of one.
    private var limit: Int {
        guard let caches = model.loaded.plan?.caches, caches > 0,
            let room = model.loaded.snapshotRoom(taken: 0)
        else { return most }
        // Those that are there take none of the room.
        return min(most, max(1, idle.count + used + max(0, room) / caches))
    }

    /// Lets the conversations go that no request uses. Their next request reads them again.
    func releaseMemory() { idle = [] }

    /// See ``Conversation/respond(to:tools:options:emit:)``.
    package func respond(
        to transcript: [H2OMessage], tools: [H2OToolDefinition] = [],
        options: H2OSession.Options = H2OSession.Options(),
        emit: @escaping @Sendable (H2OSession.Part) -> Void = { _ in }
    ) async throws -> H2OSession.Response {
        let options = try options.resolved(for: transcript, tools)
        let format = model.loaded.format(tools: tools, options: options)
        let chain = try format.chain(of: transcript)
        return try await lend(for: chain) {
            try await $0.respond(to: transcript, tools: tools, options: options, emit: emit)
        }
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
        try await lend(for: chain) {
            try await $0.prewarm(transcript, tools: tools, options: options)
        }
    }

    private func lend<Result: Sendable>(
        for chain: TranscriptChain, _ work: (Conversation) async throws -> Result
    ) async throws -> Result {
        let conversation = try await take(for: chain)
        used += 1
        defer {
            used -= 1
            put(conversation)
        }
        return try await work(conversation)
    }

    private func take(for chain: TranscriptChain) async throws -> Conversation {
        if let index = best({ $0.messagesRead(of: chain) }) { return idle.remove(at: index) }
        let hasRoom = idle.count + used < limit
        // One that has read other messages may have read the same instructions.
        let index =
            best({ $0.snapshots.messagesRead(of: chain) })
            ?? best({ $0.hasInstructions(of: chain) ? 1 : nil })
        if let index {
            return hasRoom ? try await idle[index].fork() : idle.remove(at: index)
        }
        return hasRoom || idle.isEmpty ? Conversation(model: model) : idle.removeFirst()
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
        idle.removeFirst(min(idle.count, max(0, idle.count + used - limit)))
    }
}

extension Conversation {
    /// Whether it has read the same instructions and tools, and there are some.
    fileprivate func hasInstructions(of chain: TranscriptChain) -> Bool {
        opening == chain.heads[0] && state?.pinned.isEmpty == false
    }

    /// How many of a transcript's messages the caches have read; nil if they have read others.
    fileprivate func messagesRead(of chain: TranscriptChain) -> Int? {
        guard let read = state?.chain, chain.starts(with: read) else { return nil }
        return read.count
    }
}
