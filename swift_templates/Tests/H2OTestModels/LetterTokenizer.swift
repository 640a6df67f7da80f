import MLXLMCommon

/// One token a character, and a chat template of the form `<u:text|`.
package struct LetterTokenizer: Tokenizer {
    /// Whether there is a chat template; `|` ends a turn in it.
    package let hasTemplate: Bool

    package init(hasTemplate: Bool = true) { self.hasTemplate = hasTemplate }

    /// Where a reply begins.
    package static let begin = LetterTokenizer().encode(text: "<a:", addSpecialTokens: false)

    package static let letters = Array("?|<>:abcdefghijklmnopqrstuvwxyz .\n01")

    package let bosToken: String? = nil
    package let eosToken: String? = "|"
    package let unknownToken: String? = "?"

    package func encode(text: String, addSpecialTokens: Bool) -> [Int] {
        text.map { Self.letters.firstIndex(of: $0) ?? 0 }
    }

    package func decode(tokenIds: [Int], skipSpecialTokens: Bool) -> String {
        String(tokenIds.map { Self.letters[$0] })
    }

    package func convertTokenToId(_ token: String) -> Int? {
        token.count == 1 ? token.first.flatMap(Self.letters.firstIndex) : nil
    }

    package func convertIdToToken(_ id: Int) -> String? {
        Self.letters.indices.contains(id) ? String(Self.letters[id]) : nil
    }

    package func applyChatTemplate(
        messages: [[String: any Sendable]], tools: [[String: any Sendable]]?,
        additionalContext: [String: any Sendable]?
    ) throws -> [Int] {
        guard hasTemplate else { throw TokenizerError.missingChatTemplate }
        let said = messages.map { message in
            let role = (message["role"] as? String)?.prefix(1) ?? "?"
            return "<\(role):\(message["content"] as? String ?? "")|\n"
        }
        return encode(text: said.joined() + "<a:", addSpecialTokens: false)
    }
}

package struct NoProcessor: UserInputProcessor {
    package init() {}

    package func prepare(input: UserInput) async throws -> LMInput {
        throw CancellationError()
    }
}
