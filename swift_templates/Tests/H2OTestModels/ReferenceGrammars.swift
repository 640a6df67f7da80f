import H2OGrammar
import H2OSessions
import MLXLMCommon

/// Whether this version of mlx-swift-lm can hold replies to schemas.
package let hasGrammarEngine: Bool = {
    let tokenizer = TemplateTokenizer(.qwen3)
    let stop = tokenizer.convertTokenToId(ChatTemplate.qwen3.stop) ?? 0
    let engine = try? GrammarEngine(tokenizer: tokenizer, endOfTurn: stop) { _, _ in false }
    return engine != nil
}()

extension H2OModel {
    /// This model, whose replies are held to schemas by a ``ReferenceGrammar`` where this version
    /// of mlx-swift-lm has no grammar engine.
    package nonisolated func withGrammars(_ template: ChatTemplate) -> H2OModel {
        guard !hasGrammarEngine else { return self }
        let tokenizer = TemplateTokenizer(template)
        let stop = tokenizer.convertTokenToId(template.stop) ?? 0
        loaded.grammars = SchemaGrammars(tokenizer: tokenizer, endOfTurn: stop) {
            ReferenceGrammar($0, letters: TemplateTokenizer.letters, end: stop)
        }
        return self
    }
}
