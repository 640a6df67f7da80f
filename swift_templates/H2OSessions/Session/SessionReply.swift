import H2OKit
import MLXLMCommon

extension H2OSession {
    /// Options of a reply.
    public struct Options: Sendable {
        public var sampling: H2OSampling
        /// The most tokens of one answer, including its thoughts. nil means no limit; with a
        /// `schema`, nil means 512 and two for each byte of the schema's shortest value.
        public var maxTokens: Int?
        /// Whether the model thinks before it answers; nil for the chat template's default.
        public var thinking: Bool?
        /// Further variables of the chat template.
        public var templateContext: [String: JSONValue]
        /// Texts that end an answer when the model writes them; the answer does not contain them.
        public var stopStrings: [String]
        /// The schema that the reply follows. The reply is then JSON, without thoughts and tool
        /// calls, and stop strings have no effect. A reply
        /// that does not end within `maxTokens`, or is not valid, is an error
        /// (``H2OSessionError/replyTooLong(atMost:)``,
        /// ``H2OSessionError/replyBreaksSchema(place:)``), although its text was already streamed;
        /// the conversation is then as it was before the request.
        public var schema: H2OSchema?
        /// Whether the model must call a tool before it answers. The model then does not think.
        /// Like a schema, this needs a grammar engine.
        public var requiresToolCall: Bool
        /// The most rounds of tool calls in one reply.
        public var maxToolRounds: Int
        /// Whether a request in Low Power Mode throws ``H2OSessionError/lowPowerMode``. Use this for
        /// work that can wait.
        public var refusesInLowPowerMode: Bool
        /// Whether to continue the last reply.
        var goesOn = false
        /// The existing part of a reply that continues; nil for a new reply.
        var beginning: H2OMessage?

        public init(
            sampling: H2OSampling = H2OSampling(), maxTokens: Int? = nil, thinking: Bool? = nil,
            templateContext: [String: JSONValue] = [:], stopStrings: [String] = [],
            schema: H2OSchema? = nil, requiresToolCall: Bool = false, maxToolRounds: Int = 8,
            refusesInLowPowerMode: Bool = false
        ) {
            self.sampling = sampling
            self.maxTokens = maxTokens
            self.thinking = thinking
            self.templateContext = templateContext
            self.stopStrings = stopStrings
            self.schema = schema
            self.requiresToolCall = requiresToolCall
            self.maxToolRounds = maxToolRounds
            self.refusesInLowPowerMode = refusesInLowPowerMode
        }
    }
}

extension H2OSession {
    /// A piece of a reply, as it is streamed.
    public enum Part: Hashable, Sendable {
        /// Text that follows the text so far.
        case text(String)
        /// Text that follows the thoughts so far.
        case thought(String)
        /// The model calls a tool.
        case toolCall(H2OToolCall)
        /// Text that looks like a tool call but cannot be parsed, was cut off or names an unknown
        /// tool, as the model wrote it.
        case malformedToolCall(String)
        /// The output of a tool, or the text of its error.
        case toolResult(H2OMessage)
        /// The last part of a reply.
        case usage(Usage)
    }

    /// A complete reply: its text, or the value of a type.
    public struct Response<Content> {
        public var content: Content
        /// The model's thoughts; empty if there are none.
        public var thoughts = ""
        /// The model's tool calls that have no output yet.
        public var toolCalls = [H2OToolCall]()
        /// Texts that look like tool calls but cannot be parsed, as the model wrote them.
        public var malformedToolCalls = [String]()
        public var usage = Usage()

        public init(content: Content) { self.content = content }

        /// This response with another content.
        package func map<Other>(_ other: (Content) throws -> Other) rethrows -> Response<Other> {
            var response = Response<Other>(content: try other(content))
            response.thoughts = thoughts
            response.toolCalls = toolCalls
            response.malformedToolCalls = malformedToolCalls
            response.usage = usage
            return response
        }
    }

    /// Numbers of tokens and times of a reply.
    public struct Usage: Hashable, Codable, Sendable {
        /// Tokens of all prompts of this reply: `cachedTokens` + `readTokens`. The results of tools that
        /// this reply called are part of it, and the calls are part of `generatedTokens`.
        public var promptTokens: Int { cachedTokens + readTokens }
        /// Tokens that the caches had read before this reply; most may have been evicted.
        public var cachedTokens = 0
        /// Tokens that were read for this reply, also by repeating earlier steps.
        public var readTokens = 0
        /// Generated tokens, including thoughts and the token that ends the turn.
        public var generatedTokens = 0
        /// Generated tokens of thoughts.
        public var thoughtTokens = 0
        package var recalled: H2ORecallStatistics?
        /// The time until the first token, including time in the background; zero without a token.
        public var timeToFirstToken = Duration.zero
        public var duration = Duration.zero
        /// Why the reply ended; nil while it continues.
        public var stop: Stop?
        /// Why the first turn read the system prompt although the package contains its caches, for
        /// the app's developer; nil if the caches were used or there are none.
        public var preparedPromptProblem: String?

        public init() {}

        /// Archived rows of all heads that were read for this reply; nil without recall.
        public var archiveReads: Int? { recalled?.reads }

        /// Bytes of the archive at the end of the reply, in memory or in files; nil without recall.
        public var archiveBytes: Int? { recalled?.archiveBytes }

        /// Tokens generated per second, not counting the first; 0 until there are two tokens.
        public var tokensPerSecond: Double {
            let decoding = (duration - timeToFirstToken) / .seconds(1)
            guard generatedTokens > 1, decoding > 0 else { return 0 }
            return Double(generatedTokens - 1) / decoding
        }
    }

    public enum Stop: String, Hashable, Codable, Sendable {
        /// The model ended its turn.
        case endOfTurn
        /// The reply reached `maxTokens`.
        case length
        /// The model wrote one of `stopStrings`.
        case stopString
        /// The model calls tools.
        case toolCalls
        /// ``H2OSession/cancel()`` was called, or the task was canceled, or the stream was released.
        case cancelled
    }
}

extension H2OSession.Response: Equatable where Content: Equatable {}
extension H2OSession.Response: Hashable where Content: Hashable {}
extension H2OSession.Response: Sendable where Content: Sendable {}

extension H2OSession.Response<String> {
    init() { self.init(content: "") }

    /// The reply as a message of the transcript.
    public var message: H2OMessage {
        .assistant(
            content, thoughts: thoughts.isEmpty ? nil : thoughts, toolCalls: toolCalls,
            isCutOff: usage.stop == .cancelled || usage.stop == .length)
    }

    /// The reply as a message, after the existing part of a reply that continues.
    func message(after beginning: H2OMessage?) -> H2OMessage {
        guard let beginning else { return message }
        var result = message
        result.text = beginning.text + content
        let all = (beginning.thoughts ?? "") + thoughts
        result.thoughts = all.isEmpty ? nil : all
        return result
    }
}
