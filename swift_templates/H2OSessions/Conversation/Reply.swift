import H2OKit
import MLXLMCommon

/// A reply that is being generated: it receives tokens and returns parts.
struct Reply {
    private var detokenizer: ReplyText
    /// Separates calls and thoughts from text; nil if all of the reply is text.
    private var decoder: ReplyDecoder?
    private var stops: StopStrings
    private var ids: CallIdentifiers
    /// The text so far of a reply that must be a tool call; nil for other replies.
    private var requiredCall: String?
    private let format: ToolCallFormat
    /// White space at the end of a thought. It is dropped, unless more of the thought follows.
    private var thoughtEnd = ""
    private(set) var response = H2OSession.Response()
    /// The time of the request.
    let begun: Duration

    /// - Parameter promptEnd: the last tokens of the prompt
    init(to request: ConversationRequest, _ context: ModelContext, promptEnd: ArraySlice<Int>) {
        let (tools, options) = (request.format.tools, request.options)
        if options.schema == nil {
            decoder = ReplyDecoder(
                context.configuration, tokenizer: context.tokenizer,
                tools: tools.map(\.specification),
                prompt: context.tokenizer.decode(
                    tokenIds: Array(promptEnd), skipSpecialTokens: false))
            stops = StopStrings(
                context.configuration.effectiveStopStrings.union(options.stopStrings))
        } else {
            stops = StopStrings([])
        }
        requiredCall = options.requiresToolCall ? "" : nil
        let readsMarks = decoder.map { $0.canThink || !tools.isEmpty } ?? false
        let continues = options.beginning?.text.isEmpty == false
        detokenizer = ReplyText(
            after: continues ? promptEnd : [], tokenizer: context.tokenizer,
            skipsSpecialTokens: !readsMarks)
        ids = CallIdentifiers(request.transcript)
        format = context.configuration.toolCallFormat ?? .json
        begun = request.begun
    }

    var usage: H2OSession.Usage {
        get { response.usage }
        set { response.usage = newValue }
    }

    /// Whether a stop string has occurred.
    var isStopped: Bool { stops.isFound }

    /// Returns the parts that are complete with this token.
    mutating func append(_ token: Int) -> [H2OSession.Part] {
        if decoder?.isThinking ?? false { usage.thoughtTokens += 1 }
        let text = detokenizer.append(token)
        return add(decoder?.append(token, text: text) ?? [.text(text)])
    }

    /// Returns the parts that were held back.
    mutating func finish() -> [H2OSession.Part] {
        var parts = [H2OSession.Part]()
        if !isStopped {
            let rest = detokenizer.finish()
            parts = add(decoder?.finish(text: rest) ?? [.text(rest)]) + text(stops.finish())
        }
        if let written = requiredCall {
            requiredCall = nil
            parts += finishCall(written)
        }
        return parts
    }

    /// Returns the parts that are complete with the token that ends the turn.
    mutating func end(with token: Int) -> [H2OSession.Part] {
        add(decoder?.stop(at: token) ?? [])
    }

    /// Whether the answer has begun without a thought before it.
    var hasAnswerWithoutThoughts: Bool {
        response.thoughts.isEmpty && !(response.text.isEmpty && response.toolCalls.isEmpty)
    }

    /// Whether the format separates thoughts from text.
    var canThink: Bool { decoder?.canThink ?? false }

    /// Tokens that end a turn, in addition to the model's own.
    var stopTokens: Set<Int> { decoder?.stops ?? [] }

    private mutating func add(_ pieces: [ReplyPiece]) -> [H2OSession.Part] {
        var parts = [H2OSession.Part]()
        for piece in pieces where !isStopped {
            switch piece {
            case .text(let new):
                thoughtEnd = ""
                parts += text(stops.append(new))
            case .thought(let new):
                parts += thought(new)
            case .toolCall(let call):
                parts.append(add(call.id, call.function.name, call.function.arguments))
            case .malformedToolCall(let text):
                parts.append(add(malformed: text))
            }
        }
        return parts
    }

    private mutating func finishCall(_ written: String) -> [H2OSession.Part] {
        guard let call = try? RequiredCall(written) else {
            return written.isEmpty ? [] : [add(malformed: written)]
        }
        return [add(format.newCallID, call.name, call.arguments)]
    }

    private mutating func add(
        _ id: String?, _ name: String, _ arguments: [String: JSONValue]
    ) -> H2OSession.Part {
        let call = H2OToolCall(id: ids.unique(id), name: name, arguments: arguments)
        response.toolCalls.append(call)
        return .toolCall(call)
    }

    private mutating func add(malformed text: String) -> H2OSession.Part {
        response.malformedToolCalls.append(text)
        return .malformedToolCall(text)
    }

    private mutating func thought(_ new: String) -> [H2OSession.Part] {
        var certain = thoughtEnd + new
        thoughtEnd = ""
        while let last = certain.last, last.isWhitespace {
            thoughtEnd.insert(certain.removeLast(), at: thoughtEnd.startIndex)
        }
        guard !certain.isEmpty else { return [] }
        response.thoughts += certain
        return [.thought(certain)]
    }

    private mutating func text(_ new: String) -> [H2OSession.Part] {
        guard !new.isEmpty else { return [] }
        guard requiredCall == nil else {
            requiredCall?.append(new)
            return []
        }
        response.text += new
        return [.text(new)]
    }
}

/// Makes the identifiers of calls unique in a transcript.
private struct CallIdentifiers {
    private var used: Set<String>

    init(_ transcript: [H2OMessage]) {
        used = Set(transcript.flatMap { $0.toolCalls.map(\.id) })
    }

    /// Returns the model's own identifier if it is new, and otherwise another one.
    mutating func unique(_ id: String?) -> String {
        var unique = id ?? "call_1"
        var number = 1
        while !used.insert(unique).inserted {
            number += 1
            unique = "\(id ?? "call")_\(number)"
        }
        return unique
    }
}
