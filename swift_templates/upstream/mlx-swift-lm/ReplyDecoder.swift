/// Separates text, thoughts and tool calls of a reply, with the parsers of mlx-swift-lm.
public struct ReplyDecoder {
    private var thoughts: ReasoningEventEmitter?
    private var calls: ToolCallReader?
    /// The decoder of formats whose marks are tokens and not text.
    private var framed: (any TokenStreamDecoder)?

    /// - Parameters:
    ///   - tools: the tools that may be called; without tools, no text is a call
    ///   - prompt: the end of the prompt, which may begin a thought
    public init(
        _ configuration: ModelConfiguration, tokenizer: any Tokenizer,
        tools: [[String: any Sendable]], prompt: String
    ) {
        let format = configuration.toolCallFormat ?? .json
        framed = format.makeProtocolTokenStreamDecoder(
            tokenizer: tokenizer, tools: tools, stopStrings: [])
        thoughts = configuration.thoughts(tokenizer).map { config in
            ReasoningEventEmitter(
                config: config,
                primedInside: ReasoningEventEmitter.promptEndsInsideReasoning(
                    renderedPromptTail: prompt, config: config))
        }
        calls = tools.isEmpty ? nil : ToolCallReader(format, tools: tools)
    }

    /// Whether thoughts are separated from text.
    public var canThink: Bool { framed != nil || thoughts != nil }

    /// Whether the next text is a thought.
    public var isThinking: Bool {
        framed?.isInsideReasoning ?? thoughts?.isInsideReasoning ?? false
    }

    /// Returns the pieces that are complete with this token.
    ///
    /// - Parameter text: the token's text; empty while a character is incomplete
    public mutating func append(_ token: Int, text: String) -> [ReplyPiece] {
        var pieces = [ReplyPiece]()
        if framed != nil {
            _ = framed?.push(token) { event in
                pieces += ReplyPiece(event).map { [$0] } ?? []
                return true
            }
            return pieces
        }
        guard let segments = thoughts?.process(text) else { return read(text) }
        return read(segments)
    }

    /// Tokens that end a turn, in addition to the model's own.
    public var stops: Set<Int> { framed?.additionalStopTokenIDs ?? [] }

    /// Returns the pieces that are complete with the token that ends the turn: none, unless the
    /// token is a mark of the format.
    public mutating func stop(at token: Int) -> [ReplyPiece] {
        stops.contains(token) ? append(token, text: "") : []
    }

    /// Returns the text that was held back.
    ///
    /// - Parameter text: the text of the last tokens if their character stayed incomplete
    public mutating func finish(text: String) -> [ReplyPiece] {
        var pieces = [ReplyPiece]()
        if framed != nil {
            _ = framed?.finish { event in
                pieces += ReplyPiece(event).map { [$0] } ?? []
                return true
            }
            return pieces
        }
        pieces = read((thoughts?.process(text) ?? [.response(text)]) + (thoughts?.finalize() ?? []))
        return pieces + (calls?.finish() ?? [])
    }

    private mutating func read(_ segments: [ReasoningEventEmitter.Segment]) -> [ReplyPiece] {
        var pieces = [ReplyPiece]()
        for segment in segments {
            switch segment {
            case .reasoning(let text): pieces.append(.thought(text))
            case .response(let text): pieces += read(text)
            }
        }
        return pieces
    }

    private mutating func read(_ text: String) -> [ReplyPiece] {
        if calls != nil { return calls?.read(text) ?? [] }
        return text.isEmpty ? [] : [.text(text)]
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

extension ModelConfiguration {
    /// The marks that enclose thoughts: the model's own, or the usual marks if its tokenizer
    /// has them.
    fileprivate func thoughts(_ tokenizer: any Tokenizer) -> ReasoningConfig? {
        let usual = ReasoningConfig.thinkTagsWithEnableThinking
        let marks = [usual.startDelimiter, usual.endDelimiter]
        let isUsual = marks.allSatisfy { tokenizer.convertTokenToId($0) != nil }
        return reasoningConfig ?? (isUsual ? usual : nil)
    }

    /// The variable of chat templates that turns thinking on and off.
    public var thinkingVariable: String {
        if case .templateFlag(let key, _) = reasoningConfig?.promptStrategy { return key }
        return "enable_thinking"
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
