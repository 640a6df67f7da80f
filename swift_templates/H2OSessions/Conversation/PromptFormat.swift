import MLXLMCommon

/// Turns messages into tokens: with the model's chat template if it has one, otherwise as
/// plain lines.
struct PromptFormat {
    let tokenizer: any Tokenizer
    /// Tokens that end the model's turn.
    let stops: Set<Int>
    let tools: [H2OToolDefinition]
    /// Further variables of the template.
    let context: [String: JSONValue]

    /// The tokens of a transcript's beginning, and the positions of instructions and tools
    /// among them.
    struct Opening {
        let tokens: [Int]
        let pinned: Range<Int>
    }

    /// What all messages are rendered with.
    struct Surroundings: Encodable {
        let tools: [H2OToolDefinition]
        let context: [String: JSONValue]
    }

    /// What a transcript is recognized by.
    func chain(of transcript: [H2OMessage]) -> TranscriptChain {
        TranscriptChain(
            opening: Surroundings(tools: tools, context: context),
            messages: transcript.map(\.withoutThoughts))
    }

    /// All messages, followed by the begin of a reply.
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
        // The common part of transcripts that begin differently is the system prompt, with
        // tools, and the template's marks around it.
        let others = try ["a", "0"].compactMap { try render(system + [.user($0)]) }
        let common = others.map { commonPrefix(tokens, $0) }.min() ?? 0
        return Opening(tokens: tokens, pinned: 0 ..< common)
    }

    /// The messages from `first` on, which follow the others in the caches, and the begin of a
    /// reply.
    ///
    /// They are rendered after a short made-up exchange, which is then cut off. Rendered alone,
    /// some templates repeat their own system prompt. Rendered after the real conversation,
    /// some leave out or alter earlier replies.
    ///
    /// - Parameter ended: whether the last reply ended with a stop token
    /// - Throws: the template's own error
    func following(_ first: Int, of transcript: [H2OMessage], ended: Bool) throws -> [Int] {
        let new = Array(transcript[first...])
        guard !new.isEmpty else { return [] }
        let asked = Array(transcript.prefix { $0.role == .system }) + [.user("a")]
        guard let opened = try render(asked) else {
            let lines = new.map { "\n" + $0.text }.joined()
            return tokenizer.encode(text: lines, addSpecialTokens: false)
        }
        let last = first > 0 ? transcript[first - 1] : nil
        guard last?.role == .assistant else {
            // The begin of a reply was read.
            let whole = try render(asked + new) ?? []
            return Array(whole[commonPrefix(opened, whole)...])
        }
        let calls = last?.toolCalls ?? []
        let answered = asked + [.assistant(calls.isEmpty ? "b" : "", toolCalls: calls)]
        let whole = try render(answered + new) ?? []
        let answer = commonPrefix(opened, whole)
        guard let stop = whole[answer...].firstIndex(where: stops.contains) else {
            // The template ends a turn without a stop token.
            return Array(whole[commonPrefix(try render(answered) ?? [], whole)...])
        }
        return Array(whole[(ended ? stop + 1 : stop)...])
    }

    /// nil if the model has no template.
    private func render(_ messages: [H2OMessage]) throws -> [Int]? {
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

extension H2OMessage {
    /// The message as chat templates read it.
    fileprivate var fields: [String: any Sendable] {
        var fields: [String: any Sendable] = ["role": role.rawValue, "content": text]
        if let thoughts { fields["reasoning_content"] = thoughts }
        if !toolCalls.isEmpty { fields["tool_calls"] = toolCalls.map(\.fields) }
        if let toolCallID { fields["tool_call_id"] = toolCallID }
        if let toolName { fields["name"] = toolName }
        return fields
    }
}

extension H2OToolCall {
    fileprivate var fields: [String: any Sendable] {
        let function: [String: any Sendable] = [
            "name": name, "arguments": arguments.mapValues(\.plain),
        ]
        return ["type": "function", "id": id, "function": function]
    }
}
