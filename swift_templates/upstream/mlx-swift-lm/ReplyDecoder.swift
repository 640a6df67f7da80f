/// Turns tokens into text as they arrive.
public protocol TokenText {
    /// Returns the text that is certain with this token.
    mutating func append(_ token: Int) -> String
    /// Returns the text that was held back.
    mutating func finish() -> String
}

/// Separates text, thoughts and tool calls of a reply, with mlx-swift-lm's parsers of calls.
public struct ReplyDecoder {
    private var text: any TokenText
    private var thoughts: ThoughtReader?
    private var calls: ToolCallReader?
    private var harmony: HarmonyReader?
    /// The decoder of other formats whose marks are tokens and not text.
    private var framed: (any TokenStreamDecoder)?

    /// - Parameters:
    ///   - format: the format of tool calls, which may have marks of its own around all parts of a
    ///     reply; nil if all of the reply is text
    ///   - marks: the marks around thoughts; nil if the model does not think
    ///   - isThinking: whether the prompt begins a thought
    ///   - tools: the tools that may be called; without tools, no text is a call
    ///   - text: turns the reply's tokens into text
    public init(
        _ format: ToolCallFormat?, marks: ThoughtMarks?, isThinking: Bool,
        tools: [[String: any Sendable]], tokenizer: any Tokenizer, text: any TokenText
    ) {
        self.text = text
        if format == .gptOSS {
            harmony = HarmonyReader(tokenizer: tokenizer, tools: tools, text: text)
        } else {
            framed = format?.makeProtocolTokenStreamDecoder(
                tokenizer: tokenizer, tools: tools, stopStrings: [])
        }
        if let format, !tools.isEmpty { calls = ToolCallReader(format, tools: tools) }
        if var marks {
            marks.exits = calls?.beginOfBlock.map { [$0] } ?? []
            thoughts = ThoughtReader(marks, isThinking: isThinking)
        }
    }

    /// Whether the next text is a thought.
    public var isThinking: Bool {
        harmony?.isThinking ?? framed?.isInsideReasoning ?? thoughts?.isThinking ?? false
    }

    /// Returns the pieces that are complete with this token.
    public mutating func append(_ token: Int) -> [ReplyPiece] {
        if harmony != nil { return harmony?.append(token) ?? [] }
        guard framed != nil else { return read(text.append(token)) }
        var pieces = [ReplyPiece]()
        _ = framed?.push(token) { event in
            pieces += ReplyPiece(event).map { [$0] } ?? []
            return true
        }
        return pieces
    }

    /// Tokens that end a turn, in addition to the model's own.
    public var stops: Set<Int> { harmony?.stops ?? framed?.additionalStopTokenIDs ?? [] }

    /// Returns the pieces that are complete with the token that ends the turn: none, unless the
    /// token is a mark of the format.
    public mutating func stop(at token: Int) -> [ReplyPiece] {
        stops.contains(token) ? append(token) : []
    }

    /// Returns the text that was held back.
    public mutating func finish() -> [ReplyPiece] {
        if harmony != nil { return harmony?.finish() ?? [] }
        guard framed == nil else {
            var pieces = [ReplyPiece]()
            _ = framed?.finish { event in
                pieces += ReplyPiece(event).map { [$0] } ?? []
                return true
            }
            return pieces
        }
        var pieces = read(text.finish())
        if let rest = thoughts?.finish() { pieces += separate(rest) }
        return pieces + (calls?.finish() ?? [])
    }

    private mutating func read(_ new: String) -> [ReplyPiece] {
        guard !new.isEmpty else { return [] }
        return separate(thoughts?.read(new) ?? [.text(new)])
    }

    /// Separates tool calls from the text.
    private mutating func separate(_ pieces: [ReplyPiece]) -> [ReplyPiece] {
        guard calls != nil else { return pieces }
        return pieces.flatMap { piece -> [ReplyPiece] in
            guard case .text(let new) = piece else { return [piece] }
            return calls?.read(new) ?? []
        }
    }
}

extension ReplyPiece {
    /// Converts an event to a piece; nil if the event is not a piece of the reply.
    init?(_ event: TokenStreamEvent) {
        switch event {
        case .reasoning(let text): self = .thought(text)
        case .response(let text): self = .text(text)
        case .toolCall(let call): self = .toolCall(call)
        case .rejectedToolCall(let call): self = .malformedToolCall(call.rawTextPreview)
        case .protocolError(let text): self = .malformedToolCall(text)
        case .stop: return nil
        }
    }
}

extension ToolCallFormat {
    /// The layout of calls in a reply.
    var layout: ToolCallLayout {
        switch self {
        case .json: ToolCallLayout(allowsBareJSON: true)
        case .lfm2: ToolCallLayout(isList: true)
        case .xmlFunction, .qwen35: ToolCallLayout(callMark: "<function=")
        case .glm4, .gemma, .gemma4: ToolCallLayout(needsEnd: true)
        case .kimiK2: ToolCallLayout(callMark: "<|tool_call_begin|>")
        case .minimaxM2: ToolCallLayout(callMark: "<invoke ")
        case .mistral: ToolCallLayout(argumentsMark: "[ARGS]")
        case .llama3:
            ToolCallLayout(
                optionalMark: "<|python_tag|>", isList: true, allowsBareJSON: true)
        // Decoders of mlx-swift-lm read these formats token by token.
        case .atem, .gptOSS: ToolCallLayout()
        }
    }
}
