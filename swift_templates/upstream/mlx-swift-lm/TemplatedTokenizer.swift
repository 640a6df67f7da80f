/// A tokenizer that can also render its chat template without the beginning of the reply.
public protocol TemplatedTokenizer: Tokenizer {
    /// Returns the tokens of the rendered chat template.
    ///
    /// - Parameter addGenerationPrompt: whether the template writes the beginning of the reply
    /// - Throws: ``TokenizerError/missingChatTemplate``, or the template's own error
    func applyChatTemplate(
        messages: [[String: any Sendable]],
        tools: [[String: any Sendable]]?,
        additionalContext: [String: any Sendable]?,
        addGenerationPrompt: Bool
    ) throws -> [Int]
}

extension TemplatedTokenizer {
    public func applyChatTemplate(
        messages: [[String: any Sendable]],
        tools: [[String: any Sendable]]?,
        additionalContext: [String: any Sendable]?
    ) throws -> [Int] {
        try applyChatTemplate(
            messages: messages, tools: tools, additionalContext: additionalContext,
            addGenerationPrompt: true)
    }
}
