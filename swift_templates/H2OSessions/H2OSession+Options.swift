import MLXLMCommon

extension H2OSession {
    /// How replies are made.
    public struct Options: Sendable {
        public var sampling: H2OSampling
        /// The most tokens of one answer; nil for no limit.
        public var maxTokens: Int?
        /// Whether the model thinks before it answers; nil for what its chat template does by
        /// itself.
        public var thinking: Bool?
        /// Further variables of the chat template.
        public var templateContext: [String: JSONValue]
        /// Texts before which an answer ends; they are not part of it.
        public var stopStrings: [String]
        /// What the reply is an instance of: the text is JSON, without thoughts, tool calls and
        /// stop strings. Within `maxTokens` it always ends; canceled, it is a part of one.
        public var schema: H2OSchema?
        /// Whether the model calls a tool before it answers. Takes a grammar engine, as a schema
        /// does; the model does not think then.
        public var requiresToolCall: Bool
        /// How often in one reply the model may call tools and get their answers.
        public var maxToolRounds: Int

        public init(
            sampling: H2OSampling = H2OSampling(), maxTokens: Int? = 512, thinking: Bool? = nil,
            templateContext: [String: JSONValue] = [:], stopStrings: [String] = [],
            schema: H2OSchema? = nil, requiresToolCall: Bool = false, maxToolRounds: Int = 8
        ) {
            self.sampling = sampling
            self.maxTokens = maxTokens
            self.thinking = thinking
            self.templateContext = templateContext
            self.stopStrings = stopStrings
            self.schema = schema
            self.requiresToolCall = requiresToolCall
            self.maxToolRounds = maxToolRounds
        }
    }
}
