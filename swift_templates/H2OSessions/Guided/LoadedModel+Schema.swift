import MLXLMCommon

extension LoadedModel {
    /// What holds a reply to the schema of the options; nil without one.
    ///
    /// - Throws: ``H2OSessionError``
    func schemaProcessor(for options: H2OSession.Options) throws -> SchemaProcessor? {
        guard let schema = options.schema else { return nil }
        let grammars = try grammars ?? SchemaGrammars(
            tokenizer: context.tokenizer, endOfTurn: endOfTurn(), stops: stops)
        self.grammars = grammars
        return try grammars.processor(for: schema, atMost: options.maxTokens)
    }

    /// The token that ends a turn in the chat template, or else a reply.
    private func endOfTurn() throws -> Int {
        let format = format(tools: [], options: H2OSession.Options())
        let exchange: [H2OMessage] = [.user("a"), .assistant("b"), .user("c")]
        let afterAnswer = try? format.following(2, of: exchange, ended: false).tokens.first
        let found = [afterAnswer, context.tokenizer.eosTokenId, stops.min()].compactMap { $0 }
        guard let end = found.first(where: stops.contains) else {
            let reason = "the model has no token that ends a reply"
            throw H2OSessionError.invalidSchema(.refused(reason: reason))
        }
        return end
    }
}
