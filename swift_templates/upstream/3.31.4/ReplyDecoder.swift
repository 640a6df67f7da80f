import Foundation

/// Separates text, thoughts and tool calls of a reply. Uses the parsers of calls of mlx-swift-lm
/// 3.31.4, which has no parser of thoughts.
public struct ReplyDecoder {
    private var thoughts: ThoughtReader?
    private var calls: ToolCallReader?

    /// - Parameters:
    ///   - tools: the tools that may be called; without tools, no text is a call
    ///   - prompt: the end of the prompt, which may begin a thought
    public init(
        _ configuration: ModelConfiguration, tokenizer: any Tokenizer,
        tools: [[String: any Sendable]], prompt: String
    ) {
        thoughts = ThoughtReader(tokenizer: tokenizer, prompt: prompt)
        let format = configuration.toolCallFormat ?? .json
        calls = tools.isEmpty ? nil : ToolCallReader(format, tools: tools)
    }

    /// Whether thoughts are separated from text.
    public var canThink: Bool { thoughts != nil }

    /// Whether the next text is a thought.
    public var isThinking: Bool { thoughts?.isInside ?? false }

    /// Returns the pieces that are complete with this token.
    ///
    /// - Parameter text: the token's text; empty while a character is incomplete
    public mutating func append(_ token: Int, text: String) -> [ReplyPiece] {
        guard let pieces = thoughts?.read(text) else { return read(text) }
        return readTexts(of: pieces)
    }

    /// Tokens that end a turn, in addition to the model's own.
    public var stops: Set<Int> { [] }

    /// Returns the pieces that are complete with the token that ends the turn.
    public mutating func stop(at token: Int) -> [ReplyPiece] { [] }

    /// Returns the text that was held back.
    ///
    /// - Parameter text: the text of the last tokens if their character stayed incomplete
    public mutating func finish(text: String) -> [ReplyPiece] {
        let pieces = (thoughts?.read(text) ?? [.text(text)]) + (thoughts?.finish() ?? [])
        return readTexts(of: pieces) + (calls?.finish() ?? [])
    }

    private mutating func readTexts(of pieces: [ReplyPiece]) -> [ReplyPiece] {
        var read = [ReplyPiece]()
        for piece in pieces {
            if case .text(let text) = piece { read += self.read(text) } else { read.append(piece) }
        }
        return read
    }

    private mutating func read(_ text: String) -> [ReplyPiece] {
        if calls != nil { return calls?.read(text) ?? [] }
        return text.isEmpty ? [] : [.text(text)]
    }
}

/// Separates thoughts between the marks of Qwen, DeepSeek and others.
struct ThoughtReader {
    private static let marks = (start: "<think>", end: "</think>")

    private(set) var isInside: Bool
    /// Text that may be the beginning of a mark.
    private var held = ""
    /// Whether to drop white space at the beginning of the next piece, because it follows a mark.
    private var trims = false

    /// - Returns: nil if the tokenizer has no such marks
    init?(tokenizer: any Tokenizer, prompt: String) {
        let marks = [Self.marks.start, Self.marks.end]
        guard marks.allSatisfy({ tokenizer.convertTokenToId($0) != nil }) else { return nil }
        let start = prompt.range(of: Self.marks.start, options: .backwards)
        isInside = start.map { !prompt[$0.upperBound...].contains(Self.marks.end) } ?? false
        trims = isInside
    }

    mutating func read(_ text: String) -> [ReplyPiece] {
        var rest = held + text
        var pieces = [ReplyPiece]()
        while let range = rest.range(of: isInside ? Self.marks.end : Self.marks.start) {
            take(String(rest[..<range.lowerBound]), into: &pieces)
            rest = String(rest[range.upperBound...])
            isInside.toggle()
            trims = true
        }
        let unsure = beginOfMark(in: rest)
        take(String(rest.dropLast(unsure)), into: &pieces)
        held = String(rest.suffix(unsure))
        return pieces
    }

    mutating func finish() -> [ReplyPiece] {
        var pieces = [ReplyPiece]()
        take(held, into: &pieces)
        held = ""
        return pieces
    }

    /// The number of characters at the end of the text that may be the first characters of a mark.
    private func beginOfMark(in text: String) -> Int {
        let mark = isInside ? Self.marks.end : Self.marks.start
        return (1 ..< mark.count).last { text.hasSuffix(mark.prefix($0)) } ?? 0
    }

    private mutating func take(_ text: String, into pieces: inout [ReplyPiece]) {
        let text = trims ? String(text.drop { $0.isWhitespace }) : text
        guard !text.isEmpty else { return }
        trims = false
        pieces.append(isInside ? .thought(text) : .text(text))
    }
}

extension ModelConfiguration {
    /// The variable of chat templates that turns thinking on and off.
    public var thinkingVariable: String { "enable_thinking" }
}

extension ToolCallFormat {
    /// The layout of calls in a reply.
    var layout: ToolCallLayout {
        switch self {
        case .json: ToolCallLayout(allowsBareJSON: true)
        case .lfm2: ToolCallLayout(isList: true)
        case .xmlFunction: ToolCallLayout(callMark: "<function=")
        case .glm4, .gemma, .gemma4: ToolCallLayout(needsEnd: true)
        case .kimiK2: ToolCallLayout(callMark: "<|tool_call_begin|>")
        case .minimaxM2: ToolCallLayout(callMark: "<invoke ")
        case .mistral: ToolCallLayout(argumentsMark: "[ARGS]")
        case .llama3:
            ToolCallLayout(
                optionalMark: "<|python_tag|>", isList: true, allowsBareJSON: true)
        }
    }
}
