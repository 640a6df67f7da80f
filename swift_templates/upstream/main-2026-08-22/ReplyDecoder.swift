/// Tells text, thoughts and tool calls of a reply apart, with the readers of mlx-swift-lm's
/// main of 2026-08-22.
public struct ReplyDecoder {
    private var thoughts: ReasoningEventEmitter?
    private let calls: ToolCallProcessor?
    /// Of formats whose marks are tokens and not text.
    private var framed: (any TokenStreamDecoder)?

    /// - Parameters:
    ///   - tools: what may be called; with none, nothing is a call
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
        calls = tools.isEmpty ? nil : ToolCallProcessor(format: format, tools: tools)
    }

    /// Whether thoughts are told from text.
    public var canThink: Bool { framed != nil || thoughts != nil }

    /// Whether what comes next is a thought.
    public var isThinking: Bool {
        framed?.isInsideReasoning ?? thoughts?.isInsideReasoning ?? false
    }

    /// What one more token adds.
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
        return segments.flatMap(read)
    }

    /// Tokens that end a turn besides the model's own.
    public var stops: Set<Int> { framed?.additionalStopTokenIDs ?? [] }

    /// What the token that ends the turn adds.
    public mutating func stop(at token: Int) -> [ReplyPiece] {
        framed == nil ? [] : append(token, text: "")
    }

    /// What was held back.
    ///
    /// - Parameter text: the last text, of a character that stayed incomplete
    public mutating func finish(text: String) -> [ReplyPiece] {
        var pieces = [ReplyPiece]()
        if framed != nil {
            _ = framed?.finish { event in
                pieces += ReplyPiece(event).map { [$0] } ?? []
                return true
            }
            return pieces
        }
        pieces = (thoughts?.process(text) ?? [.response(text)]).flatMap(read)
        pieces += (thoughts?.finalize() ?? []).flatMap(read)
        return pieces + (calls?.processEOSOutputs() ?? []).map(ReplyPiece.init)
    }

    private func read(_ segment: ReasoningEventEmitter.Segment) -> [ReplyPiece] {
        switch segment {
        case .reasoning(let text): [.thought(text)]
        case .response(let text): read(text)
        }
    }

    private func read(_ text: String) -> [ReplyPiece] {
        guard let calls else { return text.isEmpty ? [] : [.text(text)] }
        return calls.processChunkOutputs(text).map(ReplyPiece.init)
    }
}

extension ReplyPiece {
    init(_ output: ToolCallProcessor.Output) {
        switch output {
        case .response(let text): self = .text(text)
        case .toolCall(let call): self = .toolCall(call)
        case .rejectedToolCall(let call): self = .malformedToolCall(call.rawTextPreview)
        }
    }

    /// nil for what is no piece of the reply.
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
    /// The model's own marks of thoughts, or the usual ones where its tokenizer has them.
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
