import Foundation
import H2OKit
import MLX
import MLXLMCommon
import MLXNN

extension H2OModel {
    /// One step of a scripted reply. A text literal is a ``text(_:)``.
    public enum ScriptStep: ExpressibleByStringLiteral, Sendable {
        /// Says a text, word by word.
        case text(String)
        /// Thinks a text, word by word.
        case thought(String)
        /// Calls a tool of the session. The next reply of the script follows the tool's output.
        case toolCall(String, arguments: [String: JSONValue] = [:])
        /// Waits.
        case delay(Duration)
        /// Ends the request with an error, as if the model had failed.
        case error(any Error)

        public init(stringLiteral text: String) { self = .text(text) }
    }

    /// A model without weights that answers from a script, for previews and tests of an app.
    ///
    ///     #Preview {
    ///         ChatView(chat: H2OChat { .scripted([.thought("A greeting."), "Hello!"]) })
    ///     }
    ///
    /// Sessions treat it as any other model: they run tools, can be canceled, check replies with a
    /// schema, and refuse a second prompt at the same time. It computes nothing on the GPU and
    /// has no caches, so `save(to:)` finds nothing to save. In `maxTokens` and in the usage, a word
    /// is a token.
    ///
    /// - Parameters:
    ///   - replies: the steps of each reply, in order. A request without a reply throws
    ///     ``H2OSessionError/scriptEnded(replies:)``
    ///   - pace: the time before each word
    public static func scripted(
        _ replies: [ScriptStep]..., pace: Duration = .zero
    ) -> H2OModel {
        scripted(replies, pace: pace)
    }

    /// A model without weights whose replies are in an array; see ``scripted(_:pace:)-(ScriptStep...,_)``.
    public static func scripted(
        _ replies: [[ScriptStep]], pace: Duration = .zero
    ) -> H2OModel {
        let script = Script(replies, pace: pace)
        let context = ModelContext(
            configuration: ModelConfiguration(id: "scripted"), model: ModelWithoutWeights(),
            processor: ModelWithoutWeights.Processor(), tokenizer: ByteTokenizer())
        let platform = H2OPlatform(
            memory: MemoryGuard { nil }, background: BackgroundGuard(),
            metal: MetalCheck { nil }, pressure: MemoryPressure(),
            conditions: DeviceConditions())
        let thinking = ChatFacts.Thinking(begin: "<think>", end: "</think>")
        // A configuration that evicts nothing is always valid.
        let caches = H2OCaches(configuration: try! .unbounded())
        return H2OModel(
            LoadedModel(
                context: context, caches: caches,
                chat: ChatFacts(thinking: script.thinks ? thinking : nil), platform: platform,
                script: script))
    }
}

/// The replies of a model without weights.
final class Script: @unchecked Sendable {
    private let lock = NSLock()
    private let replies: [[H2OModel.ScriptStep]]
    private var used = 0
    private let pace: Duration

    init(_ replies: [[H2OModel.ScriptStep]], pace: Duration) {
        (self.replies, self.pace) = (replies, pace)
    }

    var thinks: Bool {
        replies.joined().contains { if case .thought = $0 { true } else { false } }
    }

    private func next() throws -> [H2OModel.ScriptStep] {
        try lock.withLock {
            guard used < replies.count else {
                throw H2OSessionError.scriptEnded(replies: replies.count)
            }
            used += 1
            return replies[used - 1]
        }
    }

    /// Answers a request with the next reply.
    ///
    /// - Parameter isTurn: whether the model is free; if not, the reply was canceled
    func respond(
        to request: ConversationRequest, isTurn: Bool, elapsed: @Sendable () -> Duration,
        _ emit: @Sendable (H2OSession.Part) -> Void
    ) async throws -> H2OSession.Response<String> {
        var reply = ScriptedReply(to: request)
        do {
            if !isTurn { throw CancellationError() }
            for step in try next() {
                try await perform(step, &reply, elapsed, emit)
            }
            reply.response.usage.stop = reply.response.toolCalls.isEmpty ? .endOfTurn : .toolCalls
        } catch is CancellationError {
            reply.response.usage.stop = .cancelled
        } catch is ScriptedReply.IsFull {
            reply.response.usage.stop = .length
        }
        reply.response.usage.duration = elapsed() - request.begun
        try reply.check()
        emit(.usage(reply.response.usage))
        return reply.response
    }

    private func perform(
        _ step: H2OModel.ScriptStep, _ reply: inout ScriptedReply,
        _ elapsed: @Sendable () -> Duration, _ emit: @Sendable (H2OSession.Part) -> Void
    ) async throws {
        try Task.checkCancellation()
        switch step {
        case .text(let text), .thought(let text):
            for word in text.words {
                if pace > .zero { try await Task.sleep(for: pace) }
                try Task.checkCancellation()
                if case .text = step {
                    try reply.say(word, at: elapsed())
                    emit(.text(word))
                } else {
                    try reply.think(word, at: elapsed())
                    emit(.thought(word))
                }
                await Task.yield()
            }
        case .toolCall(let name, let arguments): emit(.toolCall(reply.call(name, arguments)))
        case .delay(let duration): try await Task.sleep(for: duration)
        case .error(let error): throw error
        }
    }
}

/// A scripted reply that is being given.
private struct ScriptedReply {
    /// The reply has its most words.
    struct IsFull: Error {}

    private let options: H2OSession.Options
    /// The time of the request.
    private let begun: Duration
    private var ids: CallIdentifiers
    var response = H2OSession.Response<String>()

    init(to request: ConversationRequest) {
        (options, begun) = (request.options, request.begun)
        ids = CallIdentifiers(request.transcript)
        response.usage.readTokens = request.transcript.map(\.text.words.count).reduce(0, +)
    }

    mutating func say(_ word: String, at time: Duration) throws {
        try count(at: time)
        response.content += word
    }

    mutating func think(_ word: String, at time: Duration) throws {
        try count(at: time)
        response.usage.thoughtTokens += 1
        response.thoughts += word
    }

    mutating func call(_ name: String, _ arguments: [String: JSONValue]) -> H2OToolCall {
        let call = H2OToolCall(id: ids.unique(nil), name: name, arguments: arguments)
        response.toolCalls.append(call)
        return call
    }

    private mutating func count(at time: Duration) throws {
        guard response.usage.generatedTokens < options.maxTokens ?? .max else { throw IsFull() }
        if response.usage.generatedTokens == 0 { response.usage.timeToFirstToken = time - begun }
        response.usage.generatedTokens += 1
    }

    /// Checks a reply with a schema, as that of a model with weights.
    func check() throws {
        guard let schema = options.schema, !options.requiresToolCall else { return }
        if response.usage.stop == .length {
            throw H2OSessionError.replyTooLong(atMost: response.usage.generatedTokens)
        }
        if response.usage.stop == .endOfTurn { try schema.check(response.content) }
    }
}

extension String {
    /// The words, each with the white space after it.
    fileprivate var words: [String] {
        var words = [String]()
        for character in self {
            if let last = words.last?.last, !last.isWhitespace || character.isWhitespace {
                words[words.count - 1].append(character)
            } else {
                words.append(String(character))
            }
        }
        return words
    }
}

/// Takes the place of a model that is never called.
private final class ModelWithoutWeights: Module, PromptAtOnceModel {
    struct Processor: UserInputProcessor {
        func prepare(input: UserInput) async throws -> LMInput { throw CancellationError() }
    }

    func callAsFunction(_ inputs: MLXArray, cache: [any KVCache]?) -> MLXArray { inputs }

    func newCache(parameters: GenerateParameters?) -> [any KVCache] { [] }
}

/// A tokenizer whose tokens are bytes, with a chat template that only joins the messages.
private struct ByteTokenizer: Tokenizer {
    var bosToken: String? { nil }
    var eosToken: String? { nil }
    var unknownToken: String? { nil }

    func encode(text: String, addSpecialTokens: Bool) -> [Int] { text.utf8.map { Int($0) } }

    func decode(tokenIds: [Int], skipSpecialTokens: Bool) -> String {
        String(decoding: tokenIds.map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
    }

    func convertTokenToId(_ token: String) -> Int? { token.utf8.first.map { Int($0) } }

    func convertIdToToken(_ id: Int) -> String? {
        decode(tokenIds: [id], skipSpecialTokens: false)
    }

    func applyChatTemplate(
        messages: [[String: any Sendable]], tools: [[String: any Sendable]]?,
        additionalContext: [String: any Sendable]?
    ) throws -> [Int] {
        let texts = messages.map { $0["content"] as? String ?? "" }
        return encode(text: texts.joined(separator: "\n") + "\n", addSpecialTokens: false)
    }
}
