import H2OSessions
import MLXLMCommon

/// A grammar in place of the engine's: a text stays the beginning of one of a few texts.
package final class ScriptedGrammar: TokenGrammar {
    private let texts: [String]
    private let letters: [String]
    private let end: Int
    private var text = ""

    /// - Parameters:
    ///   - texts: the complete texts
    ///   - letters: the text of each token
    ///   - end: the token that ends a reply
    package init(_ texts: [String], letters: [String], end: Int) {
        (self.texts, self.letters, self.end) = (texts, letters, end)
    }

    package func allowed() -> [UInt32]? {
        var words = [UInt32](repeating: 0, count: (letters.count + 31) / 32)
        for (token, letter) in letters.enumerated()
        where token == end
            ? texts.contains(text) : texts.contains(where: { $0.hasPrefix(text + letter) })
        {
            words[token / 32] |= 1 << UInt32(token % 32)
        }
        return words
    }

    package func accept(_ token: Int) { text += letters[token] }

    package func restart() { text = "" }
}

/// Whether mlx-swift-lm can make replies follow a schema, which its stand-in cannot.
package let hasGrammarEngine: Bool = {
    let grammars = SchemaGrammars(tokenizer: TestTokenizer(), endOfTurn: EchoModel.stop, stops: [])
    return (try? grammars.processor(for: H2OSchema("{}"), atMost: nil)) != nil
}()

extension H2OModel {
    /// This model, whose replies with a schema are one of a few texts if there is no grammar engine.
    package nonisolated func withGrammars(_ template: ChatTemplate) -> H2OModel {
        guard !hasGrammarEngine else { return self }
        let tokenizer = TestTokenizer(template)
        loaded.grammars = SchemaGrammars(tokenizer: tokenizer, endOfTurn: tokenizer.stop) { _ in
            ScriptedGrammar(Self.structured, letters: tokenizer.letters, end: tokenizer.stop)
        }
        return self
    }

    private static let structured = [
        #"{"name": "add", "arguments": {"a": 1, "b": 2}}"#, #"{"city": "Oslo", "days": 3}"#,
        #"{"city":"Oslo","days":3}"#,
    ]
}
