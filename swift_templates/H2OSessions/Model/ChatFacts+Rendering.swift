import H2OKit
import MLXLMCommon

extension ChatFacts {
    /// Finds what the chat template of a model does that was not bundled.
    init(rendering context: ModelContext) {
        let (configuration, tokenizer) = (context.configuration, context.tokenizer)
        let extra = configuration.extraEOSTokens.compactMap(tokenizer.convertTokenToId)
        let stops = configuration.eosTokenIds.union(extra)
            .union([tokenizer.eosTokenId].compactMap { $0 })
        let reasoning = configuration.reasoningConfig
        var variable: String?
        if case .templateFlag(let key, _) = reasoning?.promptStrategy { variable = key }
        self.init(
            thinking: reasoning.map {
                Thinking(begin: $0.startDelimiter, end: $0.endDelimiter, variable: variable)
            }, stops: stops)
        let ask = [H2OMessage.user("a")]
        let tool = H2OToolDefinition(name: "find", description: "Finds.", parameters: [])
        let format = PromptFormat(tokenizer: tokenizer, stops: stops)
        let asked = try? format.opening(ask).tokens
        let withTool = try? PromptFormat(tokenizer: tokenizer, stops: stops, tools: [tool])
            .opening(ask).tokens
        let instructed = try? format.opening([.system("b")] + ask).tokens
        template = ((try? format.beginning([])) ?? nil) != nil
        tools = template && withTool != nil && withTool != asked
        system = instructed != nil && instructed != asked
        dropsThoughts = thinking != nil && ((try? format.dropsThoughts()) ?? false)
    }
}
