import H2OKit
import MLXLMCommon

/// A reply that is being generated: tokens go in, parts come out.
struct Reply {
    private var detokenizer: ReplyText
    /// nil if all of the reply is text.
    private var decoder: ReplyDecoder?
    private var stops: StopStrings
    private var ids: CallIdentifiers
    /// What was written of a call that the reply has to be; nil if it need not be one.
    private var requiredCall: String?
    private let format: ToolCallFormat
    /// White space at the end of a thought: the mark's that ends it, unless more thought comes.
    private var thoughtEnd = ""
    private(set) var response = H2OSession.Response()
    var usage = H2OSession.Usage()
    let begun: Duration

    /// - Parameters:
    ///   - prompt: the end of the prompt
    ///   - transcript: what the reply follows
    init(
        _ context: ModelContext, tools: [H2OToolDefinition], options: H2OSession.Options,
        prompt: String, transcript: [H2OMessage], begun: Duration
    ) {
        if options.schema == nil {
            decoder = ReplyDecoder(
                context.configuration, tokenizer: context.tokenizer,
                tools: tools.map(\.specification), prompt: prompt)
            stops = StopStrings(
                context.configuration.effectiveStopStrings.union(options.stopStrings))
        } else {
            stops = StopStrings([])
        }
        requiredCall = options.requiresToolCall ? "" : nil
        let readsMarks = decoder.map { $0.canThink || !tools.isEmpty } ?? false
        detokenizer = ReplyText(tokenizer: context.tokenizer, skipsSpecialTokens: !readsMarks)
        ids = CallIdentifiers(transcript)
        format = context.configuration.toolCallFormat ?? .json
        self.begun = begun
    }

    /// Whether a stop string has come.
    var isStopped: Bool { stops.isFound }

    /// The parts that one more token makes certain.
    mutating func append(_ token: Int) -> [H2OSession.Part] {
        if decoder?.isThinking ?? false { usage.thoughtTokens += 1 }
        let text = detokenizer.append(token)
        return add(decoder?.append(token, text: text) ?? [.text(text)])
    }

    /// The parts that were held back.
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

    /// The parts that a token makes certain which ends the turn.
    mutating func end(with token: Int) -> [H2OSession.Part] {
        add(decoder?.stop(at: token) ?? [])
    }

    /// Whether thoughts can be told from text.
    var canThink: Bool { decoder?.canThink ?? false }

    /// Tokens that end a turn besides the model's own.
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
        guard let call = RequiredCall.call(in: written) else {
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
        var known = thoughtEnd + new
        thoughtEnd = ""
        while let last = known.last, last.isWhitespace {
            thoughtEnd.insert(known.removeLast(), at: thoughtEnd.startIndex)
        }
        guard !known.isEmpty else { return [] }
        response.thoughts += known
        return [.thought(known)]
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

/// Identifiers of calls, no two alike in a transcript.
private struct CallIdentifiers {
    private var used: Set<String>

    init(_ transcript: [H2OMessage]) {
        used = Set(transcript.flatMap { $0.toolCalls.map(\.id) })
    }

    /// The model's own identifier, if it is new.
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
