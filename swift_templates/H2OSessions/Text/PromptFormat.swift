import MLXLMCommon

/// Turns messages into tokens: with the model's chat template if it has one, otherwise as
/// plain lines.
struct PromptFormat {
    let tokenizer: any Tokenizer
    /// Tokens that end the model's turn.
    let stops: Set<Int>
    let tools: [H2OToolDefinition]
    /// Further variables of the template.
    let variables: [String: JSONValue]
    /// The template's variable that turns thoughts on or off, if the options set it.
    var thinking = [String: JSONValue]()

    /// The number of tokens at the end of a prompt among which a thought may begin.
    static let promptEnd = 16

    /// The tokens of a transcript's beginning, and the positions of instructions and tools
    /// among them.
    struct Opening {
        let tokens: [Int]
        let pinned: Range<Int>
    }

    /// The tokens of these messages that do not depend on the user's next message: of the system
    /// prompt, for example, with tools and the template's special tokens around it. nil without a
    /// template.
    func tokensBeforeUser(after messages: [H2OMessage]) throws -> [Int]? {
        guard let first = try render(messages + [.user("a")]),
            let second = try render(messages + [.user("0")])
        else { return nil }
        return Array(first.prefix(commonPrefix(first, second)))
    }

    /// The tokens of all messages and of the beginning of a reply.
    ///
    /// - Throws: the template's own error
    func opening(_ transcript: [H2OMessage]) throws -> Opening {
        let system = Array(transcript.prefix { $0.role == .system })
        guard let tokens = try render(transcript) else {
            let lines = transcript.map(\.text).joined(separator: "\n")
            let alone = system.map { $0.text + "\n" }.joined()
            let tokens = tokenizer.encode(text: lines, addSpecialTokens: true)
            let first = tokenizer.encode(text: alone, addSpecialTokens: true)
            return Opening(tokens: tokens, pinned: 0 ..< commonPrefix(tokens, first))
        }
        guard !system.isEmpty || !tools.isEmpty else {
            return Opening(tokens: tokens, pinned: 0 ..< 0)
        }
        let common = try tokensBeforeUser(after: system) ?? []
        return Opening(tokens: tokens, pinned: 0 ..< commonPrefix(tokens, common))
    }

    /// The tokens with which a conversation with these messages begins, whatever the user says
    /// next. nil without a template.
    ///
    /// - Throws: the template's own error
    func beginning(_ transcript: [H2OMessage]) throws -> Opening? {
        guard let tokens = try tokensBeforeUser(after: transcript) else { return nil }
        return Opening(tokens: tokens, pinned: try opening(transcript + [.user("a")]).pinned)
    }

    /// The tokens of the messages from `first` on and of the beginning of a reply. The caches have
    /// read the messages before `first`.
    ///
    /// The template renders these messages behind a short made-up exchange, which is then cut off.
    /// If they were rendered alone, some templates would repeat their own system prompt. If they
    /// were rendered after the real conversation, some templates would leave out or change earlier
    /// replies.
    ///
    /// - Parameter ended: whether the last reply ended with a stop token
    /// - Throws: the template's own error
    func following(_ first: Int, of transcript: [H2OMessage], ended: Bool) throws -> Following {
        let new = Array(transcript[first...])
        guard !new.isEmpty else { return Following(tokens: []) }
        let question = Array(transcript.prefix { $0.role == .system }) + [.user("a")]
        guard let opened = try render(question) else {
            let lines = new.map { "\n" + $0.text }.joined()
            return Following(tokens: tokenizer.encode(text: lines, addSpecialTokens: false))
        }
        let last = first > 0 ? transcript[first - 1] : nil
        guard last?.role == .assistant else {
            let begin = try replyBegin()
            let tokens = try render(question + new) ?? []
            return Following(
                tokens: Array(tokens.dropFirst(opened.count - begin)), replaced: begin)
        }
        let calls = last?.toolCalls ?? []
        let answered = question + [.assistant(calls.isEmpty ? "b" : "", toolCalls: calls)]
        let tokens = try render(answered + new) ?? []
        let answer = commonPrefix(opened, tokens)
        guard let stop = tokens[answer...].firstIndex(where: stops.contains) else {
            // This template ends a turn without a stop token.
            let unanswered = try render(answered) ?? []
            return Following(tokens: Array(tokens[commonPrefix(unanswered, tokens)...]))
        }
        return Following(tokens: Array(tokens[(ended ? stop + 1 : stop)...]))
    }

    /// The next tokens to read, after the tokens that the caches have read.
    struct Following {
        let tokens: [Int]
        /// The number of tokens to remove from the end of the unread tokens. These tokens begin a
        /// reply, but another message follows instead.
        var replaced = 0
    }

    /// The number of tokens at the end of a prompt that only begin the reply and are not in the
    /// tokens of a complete reply, such as the mark of a thought. At least 1, because a reply is
    /// generated after at least one token; 0 without a template.
    ///
    /// - Throws: the template's own error
    func replyBegin() throws -> Int {
        guard let opened = try render([.user("a")]),
            let longer = try render([.user("a"), .assistant("b"), .user("c")])
        else { return 0 }
        return max(1, opened.count - commonPrefix(opened, longer))
    }

    /// Whether the beginning of a reply has other tokens than `unread`, because thinking was turned
    /// on or off.
    ///
    /// - Throws: the template's own error
    func beginsOtherwise(than unread: [Int]) throws -> Bool {
        guard unread.count <= Self.promptEnd, let opened = try render([.user("a")]) else {
            return false
        }
        return try Array(opened.suffix(replyBegin())) != unread
    }

    /// Whether the template leaves thoughts out of earlier turns.
    ///
    /// - Throws: the template's own error
    func dropsThoughts() throws -> Bool {
        let (user, next) = (H2OMessage.user("a"), H2OMessage.user("c"))
        let with = try render([user, .assistant("b", thoughts: "t"), next])
        return try with == render([user, .assistant("b"), next]) && with != nil
    }

    /// Renders messages with the chat template; nil if the model has no template.
    private func render(_ messages: [H2OMessage]) throws -> [Int]? {
        let context = variables.merging(thinking) { $1 }
        do {
            return try tokenizer.applyChatTemplate(
                messages: messages.map(\.fields),
                tools: tools.isEmpty ? nil : tools.map(\.specification),
                additionalContext: context.isEmpty ? nil : context.mapValues(\.plain))
        } catch TokenizerError.missingChatTemplate {
            return nil
        }
    }

    private func commonPrefix(_ a: [Int], _ b: [Int]) -> Int {
        zip(a, b).prefix { $0 == $1 }.count
    }
}
