import MLXLMCommon

/// Turns messages into tokens: with the model's chat template if it has one, otherwise as
/// plain lines.
package struct PromptFormat {
    let tokenizer: any Tokenizer
    /// Whether the model has a chat template.
    let hasTemplate: Bool
    /// Tokens that end the model's turn.
    let stops: Set<Int>
    /// The marks around the model's thoughts; nil if it does not think.
    let marks: ThoughtMarks?
    let tools: [H2OToolDefinition]
    /// Further variables of the template.
    let variables: [String: JSONValue]
    /// The template's variable that turns thoughts on or off, if the options set it.
    let thinking: [String: JSONValue]

    package init(
        tokenizer: any Tokenizer, hasTemplate: Bool = true, stops: Set<Int>,
        marks: ThoughtMarks? = nil, tools: [H2OToolDefinition] = [],
        variables: [String: JSONValue] = [:], thinking: [String: JSONValue] = [:]
    ) {
        self.tokenizer = tokenizer
        self.hasTemplate = hasTemplate
        self.stops = stops
        self.marks = marks
        self.tools = tools
        self.variables = variables
        self.thinking = thinking
    }

    /// The tokens of a transcript's beginning, and the positions of instructions and tools
    /// among them.
    package struct Opening {
        package let tokens: [Int]
        package let pinned: Range<Int>
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
    package func opening(_ transcript: [H2OMessage]) throws -> Opening {
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
    package func beginning(_ transcript: [H2OMessage]) throws -> Opening? {
        guard let tokens = try tokensBeforeUser(after: transcript) else { return nil }
        return Opening(tokens: tokens, pinned: try opening(transcript + [.user("a")]).pinned)
    }

    /// The tokens of the messages from `first` on and of the beginning of a reply. The caches have
    /// read the messages before `first`, and of the last reply its text and, if it ended with one,
    /// the stop token.
    ///
    /// The template renders these messages behind a short made-up exchange, which is then cut off.
    /// If they were rendered alone, some templates would repeat their own system prompt. If they
    /// were rendered after the real conversation, some templates would leave out or change earlier
    /// replies.
    ///
    /// - Parameter stop: the stop token with which the last reply ended; nil if it was cut off
    /// - Throws: the template's own error
    package func following(
        _ first: Int, of transcript: [H2OMessage], stop: Int?
    ) throws -> Following {
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
        let (rest, closing) =
            calls.isEmpty
            ? try afterReply(question, new) : try afterCalls(calls, question, opened, new)
        guard let stop, let end = rest.prefix(closing).firstIndex(of: stop) else {
            return Following(tokens: rest)
        }
        return Following(tokens: Array(rest[(end + 1)...]))
    }

    /// The tokens after the text of a reply, and how many of them end the reply's turn. Two replies
    /// show where their text ends.
    private func afterReply(
        _ question: [H2OMessage], _ new: [H2OMessage]
    ) throws -> (rest: [Int], closing: Int) {
        let texts = ["b", "0"]
        let whole = try texts.map { try render(question + [.assistant($0)] + new) ?? [] }
        let alone = try texts.map {
            try render(question + [.assistant($0)], beginsReply: false) ?? []
        }
        let rest = Array(whole[0].suffix(commonSuffix(whole[0], whole[1])))
        return (rest, closing: commonSuffix(alone[0], alone[1]))
    }

    /// The tokens after a reply with tool calls, and how many of them end the reply's turn.
    ///
    /// - Parameter opened: the tokens of the question and of the beginning of a reply
    private func afterCalls(
        _ calls: [H2OToolCall], _ question: [H2OMessage], _ opened: [Int], _ new: [H2OMessage]
    ) throws -> (rest: [Int], closing: Int) {
        let answered = question + [.assistant("", toolCalls: calls)]
        let tokens = try render(answered + new) ?? []
        if let stop = tokens[commonPrefix(opened, tokens)...].firstIndex(where: stops.contains) {
            return (Array(tokens[stop...]), closing: 1)
        }
        // This template ends a turn without a stop token.
        let alone = try render(answered, beginsReply: false) ?? []
        return (Array(tokens[commonPrefix(alone, tokens)...]), closing: 0)
    }

    /// The next tokens to read, after the tokens that the caches have read.
    package struct Following {
        package let tokens: [Int]
        /// The number of tokens to remove from the end of the unread tokens. These tokens begin a
        /// reply, but another message follows instead.
        package var replaced = 0
    }

    /// The number of tokens at the end of a prompt that a complete reply in the transcript lacks,
    /// such as the mark that begins a thought. At least 1, because a reply is generated after at
    /// least one token. 0 without a template.
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
        guard let opened = try render([.user("a")]),
            let alone = try render([.user("a")], beginsReply: false)
        else { return false }
        let begin = opened[commonPrefix(opened, alone)...]
        if unread.count >= begin.count { return !unread.suffix(begin.count).elementsEqual(begin) }
        return try !opened.suffix(replyBegin()).elementsEqual(unread)
    }

    /// Whether the template leaves thoughts out of earlier turns.
    ///
    /// - Throws: the template's own error
    func dropsThoughts() throws -> Bool {
        let (user, next) = (H2OMessage.user("a"), H2OMessage.user("c"))
        let with = try render([user, .assistant("b", thoughts: "t"), next])
        return try with == render([user, .assistant("b"), next]) && with != nil
    }

    /// Whether a reply to the last message begins inside a thought: whether the template itself
    /// writes the mark of a thought after that message, and does not close it. Marks in messages are
    /// text.
    ///
    /// - Throws: the template's own error
    package func opensThought(after transcript: [H2OMessage]) throws -> Bool {
        guard let marks else { return false }
        let turn = transcript.lastIndex { $0.role == .user } ?? 0
        let messages = transcript[..<turn].prefix { $0.role == .system } + transcript[turn...]
        guard let opened = try render(Array(messages)),
            let alone = try render(Array(messages), beginsReply: false)
        else { return false }
        let common = commonPrefix(opened, alone)
        let texts = [opened, alone].map { tokens in
            let rest = Array(tokens[common...])
            let text =
                rest.isEmpty
                ? "" : tokenizer.decode(tokenIds: rest, skipSpecialTokens: false)
            return Array(text.unicodeScalars)
        }
        let added = texts[0].dropFirst(zip(texts[0], texts[1]).prefix { $0 == $1 }.count)
        var rest = Substring(String(String.UnicodeScalarView(added)))
        var isOpen = false
        while let mark = rest.firstRange(ofMark: isOpen ? marks.end : marks.begin) {
            rest = rest[mark.upperBound...]
            isOpen.toggle()
        }
        return isOpen
    }

    /// Renders messages with the chat template; nil if the model has no template.
    ///
    /// - Parameter beginsReply: whether the beginning of a reply follows the messages
    private func render(_ messages: [H2OMessage], beginsReply: Bool = true) throws -> [Int]? {
        guard hasTemplate else { return nil }
        guard beginsReply || tokenizer is any TemplatedTokenizer else {
            return try withoutReply(messages)
        }
        let context = variables.merging(thinking) { $1 }
        let fields = messages.map(\.fields)
        let tools = tools.isEmpty ? nil : tools.map(\.specification)
        let values = context.isEmpty ? nil : context.mapValues(\.plain)
        do {
            guard let tokenizer = tokenizer as? any TemplatedTokenizer else {
                return try tokenizer.applyChatTemplate(
                    messages: fields, tools: tools, additionalContext: values)
            }
            return try tokenizer.applyChatTemplate(
                messages: fields, tools: tools, additionalContext: values,
                addGenerationPrompt: beginsReply)
        } catch TokenizerError.missingChatTemplate {
            return nil
        }
    }

    /// The tokens of messages without the beginning of a reply, as far as a tokenizer shows them that
    /// always adds it: those with which a conversation with one more message begins too.
    private func withoutReply(_ messages: [H2OMessage]) throws -> [Int]? {
        let isReply = messages.last?.role == .assistant
        let next = isReply ? [H2OMessage.user("c")] : [.assistant("c"), .user("d")]
        guard let tokens = try render(messages), let longer = try render(messages + next) else {
            return nil
        }
        return Array(tokens.prefix(commonPrefix(tokens, longer)))
    }

    private func commonPrefix(_ a: [Int], _ b: [Int]) -> Int {
        zip(a, b).prefix { $0 == $1 }.count
    }

    private func commonSuffix(_ a: [Int], _ b: [Int]) -> Int {
        zip(a.reversed(), b.reversed()).prefix { $0 == $1 }.count
    }
}
