import Foundation
import H2OKit
import MLXLMCommon

/// A conversation with a model, in bounded memory.
///
///     let session = model.makeSession(instructions: "Be brief.")
///     for try await text in session.streamText(to: "What is a heavy hitter?") {
///         print(text, terminator: "")
///     }
///
/// The caches and their scores exist as long as the session, so a later turn reads only the new
/// tokens. The tokens of the instructions and of tools are pinned.
public actor H2OSession {
    public nonisolated let model: H2OModel
    package nonisolated let conversation: Conversation
    package nonisolated let tools: [H2OTool]
    package nonisolated let options: Options

    /// The conversation so far, instructions first.
    public internal(set) var transcript: [H2OMessage]

    private nonisolated let replies = ReplyChain()

    /// The executor of the session's model.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { model.unownedExecutor }

    init(
        _ conversation: Conversation, transcript: [H2OMessage], tools: [H2OTool], options: Options
    ) {
        model = conversation.model
        self.conversation = conversation
        self.transcript = transcript
        self.tools = tools
        self.options = options
    }

    /// Generates the model's reply to a user's message.
    ///
    /// - Parameters:
    ///   - prompt: the message
    ///   - options: options that replace the session's own
    /// - Throws: ``H2OSessionError``, an `MLXError` or the chat template's own error. The
    ///   conversation is then unchanged. `CancellationError` if the task was canceled, or
    ///   ``cancel()`` was called: what the model has said stays in the conversation, in a message
    ///   that ``H2OMessage/isCutOff``; if it has said nothing, the conversation is unchanged
    public func respond(
        to prompt: String, options: Options? = nil
    ) async throws -> Response<String> {
        try await respond(to: .user(prompt), options: options)
    }

    /// Generates the model's reply to a message of any role that the model can answer; see
    /// ``respond(to:options:)-(String,_)``.
    public func respond(
        to message: H2OMessage, options: Options? = nil
    ) async throws -> Response<String> {
        let task = try replies.begin { [options = options ?? self.options] in
            try await self.generate({ _ in (message, nil) }, options, { _ in })
        }
        let response = try await withTaskCancellationHandler {
            try await task.value
        } onCancel: {
            task.cancel()
        }
        guard !response.isCancelled else { throw CancellationError() }
        return response
    }

    /// Streams the model's reply to a user's message. Generation does not wait for the reader of the
    /// stream. It ends with the model's turn, when the stream is released, or when ``cancel()`` is
    /// called. The stream then ends without an error, and the conversation keeps what the model has
    /// said, as after a canceled ``respond(to:options:)-(String,_)``.
    ///
    /// - Parameters:
    ///   - prompt: the message
    ///   - options: options that replace the session's own
    /// - Returns: parts of the reply, the last one ``Part/usage(_:)``. The stream throws the same
    ///   errors as ``respond(to:options:)-(String,_)``.
    public nonisolated func streamResponse(
        to prompt: String, options: Options? = nil
    ) -> AsyncThrowingStream<Part, any Error> {
        streamResponse(to: .user(prompt), options: options)
    }

    /// Streams the model's reply to a message of any role that the model can answer; see
    /// ``streamResponse(to:options:)-(String,_)``.
    public nonisolated func streamResponse(
        to message: H2OMessage, options: Options? = nil
    ) -> AsyncThrowingStream<Part, any Error> {
        stream(options) { _ in (message, nil) }
    }

    /// Streams only the text of the model's reply to a user's message, in pieces that follow each
    /// other; see ``streamResponse(to:options:)-(String,_)``.
    public nonisolated func streamText(
        to prompt: String, options: Options? = nil
    ) -> AsyncCompactMapSequence<AsyncThrowingStream<Part, any Error>, String> {
        streamResponse(to: prompt, options: options).compactMap { part in
            if case .text(let text) = part { text } else { nil }
        }
    }

    /// Continues the last reply, which was cut off by ``cancel()``, by its limit of tokens, or by
    /// the end of the app, as if it had not been cut off. The model does not think again: if the reply
    /// was cut off after its thoughts, the session reads the last message and the answer so far again,
    /// and the model writes the rest.
    ///
    /// - Parameter options: options that replace the session's own
    /// - Returns: the parts that follow the existing ones. The stream throws
    ///   ``H2OSessionError/emptyPrompt`` if the last message is not a reply.
    public nonisolated func continueResponse(
        options: Options? = nil
    ) -> AsyncThrowingStream<Part, any Error> {
        var options = options ?? self.options
        (options.thinking, options.schema, options.requiresToolCall) = (false, nil, false)
        options.goesOn = true
        return stream(options) { session in
            guard session.canContinue, let question = session.transcript.dropLast().last else {
                throw H2OSessionError.emptyPrompt
            }
            return (question, session.transcript.count - 2)
        }
    }

    /// Whether the last message is a reply that can continue: one that calls no tools.
    package var canContinue: Bool {
        guard let last = transcript.last, last.role == .assistant, last.toolCalls.isEmpty else {
            return false
        }
        return [.user, .tool].contains(transcript.dropLast().last?.role)
    }

    /// Streams the reply to a turn's message, at the turn's place in the conversation.
    package nonisolated func stream(
        _ options: Options?, _ turn: @escaping Turn
    ) -> AsyncThrowingStream<Part, any Error> {
        let (stream, parts) = AsyncThrowingStream<Part, any Error>.makeStream()
        do {
            let task = try replies.begin { [options = options ?? self.options] in
                try await self.generate(turn, options) { parts.yield($0) }
            }
            parts.onTermination = { _ in task.cancel() }
            Task {
                do {
                    _ = try await task.value
                    parts.finish()
                } catch is CancellationError {
                    var usage = Usage()
                    usage.stop = .cancelled
                    parts.yield(.usage(usage))
                    parts.finish()
                } catch {
                    parts.finish(throwing: error)
                }
            }
        } catch {
            parts.finish(throwing: error)
        }
        return stream
    }

    /// Reads instructions, tools and the messages so far, and compiles the grammar of the schema in
    /// the session's options. The next reply then reads only the user's message. This shortens the
    /// wait for the first reply; after a reply, the caches have read everything already.
    ///
    /// - Throws: ``H2OSessionError``, an `MLXError`, the chat template's own error, or
    ///   `CancellationError`
    public func prewarm() async throws {
        let task = replies.append {
            try await self.conversation.prewarm(
                self.transcript, tools: self.tools.map(\.definition), options: self.options)
        }
        try await withTaskCancellationHandler {
            try await task.value
        } onCancel: {
            task.cancel()
        }
    }

    /// Stops the reply that is being generated, and returns when it has stopped.
    public nonisolated func cancel() async {
        replies.cancel()
        await replies.ended()
    }

    /// Starts a new conversation with the same instructions, and forgets the previous one.
    public func reset() async {
        replies.cancel()
        try? await afterReplies { session in
            session.transcript.removeAll { $0.role != .system }
            await session.conversation.forget()
        }
    }

    /// Tokens that the caches have read so far; most of them may have been evicted.
    public var tokensSeen: Int {
        get async { await conversation.tokensSeen }
    }

    /// Whether a reply is being generated and was not canceled. The session then refuses another
    /// prompt.
    public nonisolated var isResponding: Bool { replies.isResponding }

    /// The message to answer, and the index of the message that it replaces together with all later
    /// ones; nil if it follows the last message.
    package typealias Turn =
        @Sendable (isolated H2OSession) throws -> (message: H2OMessage, index: Int?)

    /// Runs work after all earlier replies and changes.
    func afterReplies<Value: Sendable>(
        _ work: @escaping @Sendable (isolated H2OSession) async throws -> Value
    ) async throws -> Value {
        try await replies.append { try await work(self) }.value
    }

    /// Lets the model answer a message. When the model calls tools, runs them and lets the model
    /// continue.
    ///
    /// - Throws: ``H2OSessionError/tooManyToolRounds(_:)``, or an error of the conversation. The
    ///   messages are then unchanged
    private func generate(
        _ turn: Turn, _ options: Options, _ emit: @Sendable (Part) -> Void
    ) async throws -> Response<String> {
        let before = transcript
        let (message, index) = try turn(self)
        var isAnswered = false
        defer { if !isAnswered { transcript = before } }
        var options = options
        if options.goesOn { options.beginning = transcript.last }
        if let index { transcript.removeSubrange(index...) }
        transcript.append(message)
        var total = Response<String>()
        for round in 0... {
            let response = try await conversation.respond(
                to: transcript, tools: tools.map(\.definition), options: options
            ) { part in
                if case .usage = part { return }
                emit(part)
            }
            transcript.append(response.message(after: options.beginning))
            options.beginning = nil
            total.add(response)
            let isCalling = !response.toolCalls.isEmpty
            guard isCalling, round < options.maxToolRounds || response.isCancelled else {
                if isCalling { throw H2OSessionError.tooManyToolRounds(options.maxToolRounds) }
                break
            }
            for call in response.toolCalls {
                let answer = await answer(call)
                transcript.append(answer)
                emit(.toolResult(answer))
            }
            guard !response.isCancelled, !Task.isCancelled else {
                transcript.append(.assistant("", isCutOff: true))
                total.usage.stop = .cancelled
                break
            }
        }
        isAnswered = true
        emit(.usage(total.usage))
        return total
    }
}

/// Runs a session's replies and all other changes of its conversation one after the other.
private final class ReplyChain: @unchecked Sendable {
    private let lock = NSLock()
    /// The last task. It ends after all other tasks.
    private var last: Task<Void, Never>?
    /// The reply that is being generated, and the number of replies so far.
    private var reply: (number: Int, task: Task<H2OSession.Response<String>, any Error>)?
    private var count = 0

    var isResponding: Bool { lock.withLock { goesOn } }

    private var goesOn: Bool { reply.map { !$0.task.isCancelled } ?? false }

    /// - Throws: ``H2OSessionError/busy`` while another reply is being generated
    func begin(
        _ generate: @escaping @Sendable () async throws -> H2OSession.Response<String>
    ) throws -> Task<H2OSession.Response<String>, any Error> {
        try lock.withLock {
            guard !goesOn else { throw H2OSessionError.busy }
            count += 1
            let number = count
            let task = chained {
                defer { self.end(number) }
                return try await generate()
            }
            reply = (number, task)
            return task
        }
    }

    func append<Value: Sendable>(
        _ work: @escaping @Sendable () async throws -> Value
    ) -> Task<Value, any Error> {
        lock.withLock { chained(work) }
    }

    /// Runs work after all other tasks. Call this with the lock held.
    private func chained<Value: Sendable>(
        _ work: @escaping @Sendable () async throws -> Value
    ) -> Task<Value, any Error> {
        let previous = last
        let task = Task.detached {
            await previous?.value
            return try await work()
        }
        last = Task { _ = await task.result }
        return task
    }

    func cancel() { lock.withLock { reply }?.task.cancel() }

    /// Returns when all tasks so far have ended.
    func ended() async { await lock.withLock { last }?.value }

    private func end(_ number: Int) {
        lock.withLock { if reply?.number == number { reply = nil } }
    }
}

extension H2OSession {
    /// The output of a tool, or the text of its error.
    private func answer(_ call: H2OToolCall) async -> H2OMessage {
        var text = "There is no tool named \(call.name)."
        if let tool = tools.first(where: { $0.definition.name == call.name }) {
            do {
                try Task.checkCancellation()
                text = try await tool.call(call.arguments)
            } catch {
                text = "Error: \(error.localizedDescription)"
            }
        }
        return .tool(text, callID: call.id, name: call.name)
    }
}

extension H2OSession.Response<String> {
    fileprivate var isCancelled: Bool { usage.stop == .cancelled }

    /// Adds the next round of a reply. Its tool calls replace the calls of the round before, which
    /// were answered.
    fileprivate mutating func add(_ next: Self) {
        content += next.content
        thoughts += next.thoughts
        toolCalls = []
        malformedToolCalls += next.malformedToolCalls
        usage.add(next.usage)
    }
}

extension H2OSession.Usage {
    fileprivate mutating func add(_ next: Self) {
        if stop == nil {
            self = next
            return
        }
        readTokens += next.readTokens
        generatedTokens += next.generatedTokens
        thoughtTokens += next.thoughtTokens
        recalled = recalled.flatMap { before in next.recalled.map { before + $0 } }
        duration += next.duration
        stop = next.stop
    }
}

extension H2OSession {
    /// Replaces the messages of the conversation, for example after an edit of an earlier message.
    /// The next reply continues from the end of the last turn before the change.
    ///
    /// - Throws: ``H2OSessionError/busy`` while a reply is being generated
    public func setTranscript(_ transcript: [H2OMessage]) async throws {
        guard !isResponding else { throw H2OSessionError.busy }
        try await afterReplies { $0.transcript = transcript }
    }

    /// Replaces the last reply by a new one to the same message. With sampling, the new reply may
    /// differ.
    ///
    /// - Parameter options: options that replace the session's own
    /// - Returns: the same parts as ``streamResponse(to:options:)-(String,_)``
    public nonisolated func regenerate(
        options: Options? = nil
    ) -> AsyncThrowingStream<Part, any Error> {
        stream(options) { session in
            guard let last = session.transcript.lastIndex(where: { $0.role == .user }) else {
                throw H2OSessionError.emptyPrompt
            }
            return (session.transcript[last], last)
        }
    }

    /// Creates a second session with the same conversation, instructions and tools. Both sessions
    /// then continue independently. Waits for a reply that is being generated.
    ///
    /// - Throws: `H2OCacheError.archive` if files of the archive have changed, or an error of the
    ///   file system
    public func fork() async throws -> H2OSession {
        try await afterReplies { session in
            let conversation = try await session.conversation.fork()
            return H2OSession(
                conversation, transcript: session.transcript,
                tools: session.tools, options: session.options)
        }
    }
}

extension H2OSession {
    /// Writes the conversation to a folder, so that it can continue in another process. Waits for a
    /// reply that is being generated. If the process ends while it writes, or the disk is full, the
    /// folder keeps its earlier content. If the conversation is saved after each turn, the folder also contains
    /// snapshots of earlier turns, up to the limit ``H2OSnapshotLimits/files``.
    ///
    /// In the folder, this writes and deletes `conversation.safetensors`, files named `turn-` and nine
    /// digits, and folders named `archive-` and a UUID. It does not touch other files.
    ///
    /// The folder contains the user's conversation: choose a place that others cannot read, and
    /// delete it with the conversation. If archives are in files, the folder contains them too, as
    /// links to the same files if the file system supports it.
    ///
    /// - Parameter folder: the folder, which is created if it does not exist
    /// - Throws: ``H2OSessionError/nothingToSave`` before the first reply,
    ///   `H2OCacheError.notSavable` for a model with caches of another kind, `.noSpace`, or an error
    ///   of writing
    public func save(to folder: URL) async throws {
        try await afterReplies { session in
            do {
                try await session.conversation.save(session.transcript, to: folder)
            } catch {
                throw H2OCacheError(fileError: error, folder) ?? error
            }
        }
    }

    /// Restores a conversation that ``save(to:)`` wrote. No message is read again.
    ///
    /// - Parameters:
    ///   - folder: the folder of the saved conversation; its files are not changed
    ///   - model: the model of the conversation
    ///   - tools: the same tools as before. With other tools, the next reply reads the whole
    ///     conversation again
    ///   - options: the options of replies that have none of their own
    /// - Throws: `H2OCacheError` for a folder of another model, policy, template or version, and
    ///   for damaged files, `.locked`; or an error of reading
    public static func restore(
        from folder: URL, model: H2OModel, tools: [H2OTool] = [], options: Options = Options()
    ) async throws -> H2OSession {
        let conversation = Conversation(model: model)
        do {
            let transcript = try await conversation.restore(from: folder)
            return H2OSession(
                conversation, transcript: transcript, tools: tools, options: options)
        } catch {
            throw H2OCacheError(fileError: error, folder) ?? error
        }
    }
}
