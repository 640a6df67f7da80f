import H2OKit
import MLXLMCommon

/// A reply that is being generated: tokens go in, parts come out.
struct Reply {
    private var detokenizer: ReplyText
    /// nil if all of the reply is text.
    private var decoder: ReplyDecoder?
    private var stops: StopStrings
    private var ids: CallIdentifiers
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
        let readsMarks = decoder.map { $0.canThink || !tools.isEmpty } ?? false
        detokenizer = ReplyText(tokenizer: context.tokenizer, skipsSpecialTokens: !readsMarks)
        ids = CallIdentifiers(transcript)
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
        // White space before the mark that ends a thought belongs to the mark.
        while response.thoughts.last?.isWhitespace == true { response.thoughts.removeLast() }
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
                parts += text(stops.append(new))
            case .thought(let new):
                response.thoughts += new
                parts.append(.thought(new))
            case .toolCall(let call):
                let call = H2OToolCall(
                    id: ids.unique(call.id), name: call.function.name,
                    arguments: call.function.arguments)
                response.toolCalls.append(call)
                parts.append(.toolCall(call))
            case .malformedToolCall(let text):
                response.malformedToolCalls.append(text)
                parts.append(.malformedToolCall(text))
            }
        }
        return parts
    }

    private mutating func text(_ new: String) -> [H2OSession.Part] {
        guard !new.isEmpty else { return [] }
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
