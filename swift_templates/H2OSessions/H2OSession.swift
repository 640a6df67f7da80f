import H2OKit
import MLXLMCommon

/// A conversation with a model, in bounded memory.
///
///     let session = model.makeSession(instructions: "Be brief.")
///     for try await part in await session.streamResponse(to: "What is a heavy hitter?") {
///         if case .text(let text) = part { print(text, terminator: "") }
///     }
///
/// The caches and their scores live as long as the session, so a later turn reads only the new
/// tokens. The tokens of the instructions and of tools are pinned.
public actor H2OSession {
    public nonisolated let model: H2OModel
    package let conversation: Conversation
    let tools: [H2OTool]
    let options: Options

    /// The conversation so far, instructions first.
    public internal(set) var messages: [H2OMessage]

    /// The last link of the chain of replies and resets, which follow each other.
    private var last: Task<Void, Never>?
    /// The reply that is being generated.
    private var reply: Task<Response, any Error>?
    private var replies = 0

    /// The executor of its model.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { model.unownedExecutor }

    init(_ conversation: Conversation, messages: [H2OMessage], tools: [H2OTool], options: Options) {
        model = conversation.model
        self.conversation = conversation
        self.messages = messages
        self.tools = tools
        self.options = options
    }

    /// The model's reply to a user's message. Canceling the task, or ``cancel()``, ends it; the
    /// part that was generated is the reply.
    ///
    /// - Parameters:
    ///   - prompt: the message
    ///   - options: instead of the session's
    /// - Throws: ``H2OSessionError``, an `MLXError` or the chat template's own error. The
    ///   conversation then is as before.
    public func respond(to prompt: String, options: Options? = nil) async throws -> Response {
        try await respond(to: .user(prompt), options: options)
    }

    /// The same with a message of any role that can be answered.
    public func respond(
        to message: H2OMessage, options: Options? = nil
    ) async throws -> Response {
        let task = try start(message, at: nil, options ?? self.options) { _ in }
        return try await withTaskCancellationHandler {
            try await task.value
        } onCancel: {
            task.cancel()
        }
    }

    /// Streams the model's reply to a user's message. Generation does not wait for the reader.
    /// It ends with the turn, when the stream is dropped, or when ``cancel()`` is called.
    ///
    /// - Parameters:
    ///   - prompt: the message
    ///   - options: instead of the session's
    /// - Returns: parts of the reply, the last one ``Part/usage(_:)``. The stream throws what
    ///   ``respond(to:options:)-(String,_)`` throws.
    public func streamResponse(
        to prompt: String, options: Options? = nil
    ) -> AsyncThrowingStream<Part, any Error> {
        streamResponse(to: .user(prompt), options: options)
    }

    /// The same with a message of any role that can be answered.
    public func streamResponse(
        to message: H2OMessage, options: Options? = nil
    ) -> AsyncThrowingStream<Part, any Error> {
        streamResponse(to: message, at: nil, options: options)
    }

    /// - Parameter index: of the message that this one takes the place of, and of all that
    ///   follow it; nil after the last message
    func streamResponse(
        to message: H2OMessage, at index: Int?, options: Options?
    ) -> AsyncThrowingStream<Part, any Error> {
        let parts = PartBuffer()
        do {
            let task = try start(message, at: index, options ?? self.options) { parts.add($0) }
            Task { parts.finish(await task.result.map { _ in }) }
            return parts.stream(canceling: task)
        } catch {
            return AsyncThrowingStream { $0.finish(throwing: error) }
        }
    }

    /// Reads instructions, tools and the messages so far, so that the next reply reads the
    /// user's message alone, and makes the grammar of the schema in the session's options.
    /// Before the first reply it saves time; after one the caches have read them.
    ///
    /// - Throws: ``H2OSessionError``, an `MLXError`, the chat template's own error, or
    ///   `CancellationError`
    public func prewarm() async throws {
        let definitions = tools.map(\.definition)
        try await afterReplies { session in
            try await session.conversation.prewarm(
                session.messages, tools: definitions, options: session.options)
        }
    }

    /// Stops the reply that is being generated, and returns when it has stopped. The part that
    /// was generated stays in the conversation.
    public func cancel() async {
        reply?.cancel()
        await last?.value
    }

    /// Starts a new conversation with the same instructions, and forgets the previous one.
    public func reset() async {
        reply?.cancel()
        try? await afterReplies { session in
            session.messages.removeAll { $0.role != .system }
            await session.conversation.forget()
        }
    }

    /// Tokens in the caches so far; most of them may have been evicted.
    public var tokensSeen: Int {
        get async { await conversation.tokensSeen }
    }

    /// Which positions the caches keep now.
    public var keptPositions: H2OKeptPositions {
        get async { await conversation.keptPositions }
    }

    /// Whether a reply is being generated that was not canceled; another prompt is refused then.
    public var isResponding: Bool { reply.map { !$0.isCancelled } ?? false }

    /// Begins a reply after the link before, unless there is one that goes on.
    private func start(
        _ message: H2OMessage, at index: Int?, _ options: Options,
        emit: @escaping @Sendable (Part) -> Void
    ) throws -> Task<Response, any Error> {
        guard !isResponding else { throw H2OSessionError.busy }
        replies += 1
        let (previous, number) = (last, replies)
        let task = Task.detached {
            await previous?.value
            return try await self.generate(message, at: index, options, emit, number)
        }
        reply = task
        last = Task { _ = await task.result }
        return task
    }

    /// Appends a link to the chain, and waits for it.
    func afterReplies<Value: Sendable>(
        _ work: @escaping @Sendable (isolated H2OSession) async throws -> Value
    ) async throws -> Value {
        let previous = last
        let task = Task {
            await previous?.value
            return try await work(self)
        }
        last = Task { _ = await task.result }
        return try await task.value
    }

    private func generate(
        _ message: H2OMessage, at index: Int?, _ options: Options,
        _ emit: @Sendable (Part) -> Void, _ number: Int
    ) async throws -> Response {
        defer { if number == replies { reply = nil } }
        let before = messages
        if let index { messages.removeSubrange(index...) }
        messages.append(message)
        do {
            return try await completeTurn(options, emit)
        } catch {
            messages = before
            throw error
        }
    }
}
