import MLXLMCommon

/// Turns the messages of a session into tokens: with the model's chat template if it has one,
/// otherwise as plain lines.
struct PromptFormat {
    let tokenizer: any Tokenizer
    /// Tokens that end the model's turn.
    let stops: Set<Int>
    let system: String?

    /// The tokens of the first turn, and the positions of the system prompt among them.
    struct Opening {
        let tokens: [Int]
        let pinned: Range<Int>
    }

    /// - Throws: the template's own error
    func opening(_ user: String) throws -> Opening {
        guard let templated = try template([.user(user)]) else {
            let text = (system.map { $0 + "\n" } ?? "")
            let tokens = tokenizer.encode(text: text + user, addSpecialTokens: true)
            let alone = tokenizer.encode(text: text, addSpecialTokens: true)
            return Opening(tokens: tokens, pinned: pin(tokens, alone))
        }
        // The common part of two turns that begin differently is the system prompt with the
        // template's marks around it.
        let others = try ["a", "0"].compactMap { try template([.user($0)]) }
        return Opening(tokens: templated, pinned: pin(templated, others[0], others[1]))
    }

    /// The tokens of a later turn, which follow a reply in the cache.
    ///
    /// The turn is rendered after a short made-up exchange, which is then cut off. Rendered
    /// alone, some templates repeat their own system prompt. Rendered after the real
    /// conversation, some leave out or alter earlier replies.
    ///
    /// - Parameter ended: whether the previous reply ended with a stop token
    /// - Throws: the template's own error
    func following(_ user: String, ended: Bool) throws -> [Int] {
        guard let opened = try template([.user("a")]),
            let whole = try template([.user("a"), .assistant("b"), .user(user)])
        else {
            return tokenizer.encode(text: "\n" + user, addSpecialTokens: false)
        }
        let common = commonPrefix(opened, whole)
        guard let stop = whole[common...].firstIndex(where: stops.contains) else {
            return try template([.user(user)]) ?? []
        }
        return Array(whole[(ended ? stop + 1 : stop)...])
    }

    private enum Message {
        case user(String)
        case assistant(String)

        var fields: [String: any Sendable] {
            switch self {
            case .user(let text): ["role": "user", "content": text]
            case .assistant(let text): ["role": "assistant", "content": text]
            }
        }
    }

    /// The messages after the system prompt, if there is one; nil if the model has no template.
    private func template(_ messages: [Message]) throws -> [Int]? {
        let first: [[String: any Sendable]] =
            system.map { [["role": "system", "content": $0]] } ?? []
        do {
            return try tokenizer.applyChatTemplate(
                messages: first + messages.map(\.fields), tools: nil, additionalContext: nil)
        } catch TokenizerError.missingChatTemplate {
            return nil
        }
    }

    private func pin(_ tokens: [Int], _ others: [Int]...) -> Range<Int> {
        guard system != nil else { return 0 ..< 0 }
        return 0 ..< (others.map { commonPrefix(tokens, $0) }.min() ?? 0)
    }

    private func commonPrefix(_ a: [Int], _ b: [Int]) -> Int {
        zip(a, b).prefix { $0 == $1 }.count
    }
}
