import Foundation

/// Tells text, thoughts and tool calls of a reply apart, with mlx-swift-lm 3.31.4's parsers of
/// calls. It has none of thoughts, and shows calls that it cannot read as text.
public struct ReplyDecoder {
    private var thoughts: ThoughtReader?
    private let calls: ToolCallProcessor?
    private let tags: (start: String, end: String?)?

    /// - Parameters:
    ///   - tools: what may be called; with none, nothing is a call
    ///   - prompt: the end of the prompt, which may begin a thought
    public init(
        _ configuration: ModelConfiguration, tokenizer: any Tokenizer,
        tools: [[String: any Sendable]], prompt: String
    ) {
        thoughts = ThoughtReader(tokenizer: tokenizer, prompt: prompt)
        let format = configuration.toolCallFormat ?? .json
        calls = tools.isEmpty ? nil : ToolCallProcessor(format: format, tools: tools)
        let parser = format.createParser()
        tags = parser.startTag.map { ($0, parser.endTag) }
    }

    /// Whether thoughts are told from text.
    public var canThink: Bool { thoughts != nil }

    /// Whether what comes next is a thought.
    public var isThinking: Bool { thoughts?.isInside ?? false }

    /// What one more token adds.
    ///
    /// - Parameter text: the token's text; empty while a character is incomplete
    public mutating func append(_ token: Int, text: String) -> [ReplyPiece] {
        guard let pieces = thoughts?.read(text) else { return read(text) }
        return pieces.flatMap { piece in
            if case .text(let text) = piece { read(text) } else { [piece] }
        }
    }

    /// Tokens that end a turn besides the model's own.
    public var stops: Set<Int> { [] }

    /// What the token that ends the turn adds.
    public mutating func stop(at token: Int) -> [ReplyPiece] { [] }

    /// What was held back.
    ///
    /// - Parameter text: the last text, of a character that stayed incomplete
    public mutating func finish(text: String) -> [ReplyPiece] {
        let thought = (thoughts?.read(text) ?? [.text(text)]) + (thoughts?.finish() ?? [])
        let last = thought.flatMap { piece in
            if case .text(let text) = piece { read(text) } else { [piece] }
        }
        guard let rest = calls?.processEOS(returnBufferedText: true) else {
            return last + takeCalls()
        }
        return last + split(rest) + takeCalls()
    }

    private func read(_ text: String) -> [ReplyPiece] {
        guard let calls else { return text.isEmpty ? [] : [.text(text)] }
        return split(calls.processChunk(text) ?? "") + takeCalls()
    }

    private func takeCalls() -> [ReplyPiece] {
        defer { calls?.toolCalls = [] }
        return calls?.toolCalls.map(ReplyPiece.toolCall) ?? []
    }

    /// Marks are in a text only around a call that could not be read.
    private func split(_ text: String) -> [ReplyPiece] {
        guard let tags, let start = text.range(of: tags.start) else {
            return text.isEmpty ? [] : [.text(text)]
        }
        let end = tags.end.flatMap { text.range(of: $0, range: start.upperBound ..< text.endIndex) }
        let call = text[start.lowerBound ..< (end?.upperBound ?? text.endIndex)]
        let before = text[..<start.lowerBound]
        return (before.isEmpty ? [] : [.text(String(before))]) + [.malformedToolCall(String(call))]
            + split(String(text[call.endIndex...]))
    }
}

/// Reads thoughts between the marks of Qwen, DeepSeek and others.
struct ThoughtReader {
    private static let marks = (start: "<think>", end: "</think>")

    private(set) var isInside: Bool
    /// May be the begin of a mark.
    private var held = ""
    /// Whether white space at the begin of the next piece belongs to a mark.
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
            take(String(rest[..<range.lowerBound]), isLast: true, into: &pieces)
            rest = String(rest[range.upperBound...])
            isInside.toggle()
            trims = true
        }
        let kept = beginOfMark(in: rest)
        take(String(rest.dropLast(kept)), isLast: false, into: &pieces)
        held = String(rest.suffix(kept))
        return pieces
    }

    mutating func finish() -> [ReplyPiece] {
        var pieces = [ReplyPiece]()
        take(held, isLast: true, into: &pieces)
        held = ""
        return pieces
    }

    /// How many characters at the end of the text may begin a mark or the white space before.
    private func beginOfMark(in text: String) -> Int {
        let mark = isInside ? Self.marks.end : Self.marks.start
        let begin = (1 ..< mark.count).last { text.hasSuffix(mark.prefix($0)) } ?? 0
        guard isInside else { return begin }
        return begin + text.dropLast(begin).reversed().prefix { $0.isWhitespace }.count
    }

    private mutating func take(_ text: String, isLast: Bool, into pieces: inout [ReplyPiece]) {
        var text = trims ? String(text.drop { $0.isWhitespace }) : text
        if isInside, isLast { while text.last?.isWhitespace == true { text.removeLast() } }
        guard !text.isEmpty else { return }
        trims = false
        pieces.append(isInside ? .thought(text) : .text(text))
    }
}

extension ModelConfiguration {
    /// The variable of chat templates that turns thinking on and off.
    public var thinkingVariable: String { "enable_thinking" }
}
