import H2OGrammar
import H2OSessions
import MLXLMCommon

extension H2OModel {
    /// This model, whose replies are held to schemas by a ``ReferenceGrammar`` where this version
    /// of mlx-swift-lm has no grammar engine.
    package nonisolated func withGrammars(_ template: ChatTemplate) -> H2OModel {
        let tokenizer = TemplateTokenizer(template)
        let stop = tokenizer.convertTokenToId(template.stop) ?? 0
        let engine = try? GrammarEngine(tokenizer: tokenizer, endOfTurn: stop, excluded: [])
        guard engine == nil else { return self }
        loaded.grammars = SchemaGrammars(tokenizer: tokenizer, endOfTurn: stop) {
            ReferenceGrammar($0, letters: TemplateTokenizer.letters, end: stop)
        }
        return self
    }
}
