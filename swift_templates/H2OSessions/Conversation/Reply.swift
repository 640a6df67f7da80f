import H2OKit
import MLXLMCommon

/// A reply that is being generated: it receives tokens and returns parts.
struct Reply {
    /// Separates calls and thoughts from text.
    private var decoder: ReplyDecoder
    private var stops: StopStrings
    private var ids: CallIdentifiers
    /// Whether the reply must be a tool call.
    private let isRequiredCall: Bool
    /// The schema of the reply, and the text so far of a reply that has one.
    private let schema: H2OSchema?
    private var written = ""
    private let format: ToolCallFormat
    private(set) var response = H2OSession.Response<String>()
    /// The time of the request.
    let begun: Duration

    /// - Parameters:
    ///   - isThinking: whether the prompt begins a thought
    ///   - prompt: the last tokens of the prompt
    init(
        to request: ConversationRequest, _ loaded: LoadedModel, isThinking: Bool,
        after prompt: [Int]
    ) {
        let (tools, options) = (request.format.tools, request.options)
        let configuration = loaded.context.configuration
        format = configuration.toolCallFormat ?? .json
        schema = options.schema
        let isPlain = schema != nil
        let continues = options.beginning?.text.isEmpty == false
        // A reply that continues does not think again.
        let marks = isPlain || continues ? nil : request.format.marks
        let text = ReplyText(
            after: continues ? prompt : [], tokenizer: loaded.context.tokenizer,
            skipsSpecialTokens: isPlain || (marks == nil && tools.isEmpty))
        decoder = ReplyDecoder(
            isPlain ? nil : format, marks: marks, isThinking: isThinking,
            tools: isPlain ? [] : tools.map(\.specification),
            tokenizer: loaded.context.tokenizer, text: text)
        stops =
            isPlain
            ? StopStrings([])
            : StopStrings(
                configuration.effectiveStopStrings.union(loaded.chat.stopTexts)
                    .union(options.stopStrings))
        isRequiredCall = options.requiresToolCall
        ids = CallIdentifiers(request.transcript)
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
        if decoder.isThinking { usage.thoughtTokens += 1 }
        return add(decoder.append(token))
    }

    /// Returns the parts that were held back.
    ///
    /// - Throws: ``H2OSessionError/replyTooLong(atMost:)``,
    ///   ``H2OSessionError/replyBreaksSchema(place:)``
    mutating func finish() throws -> [H2OSession.Part] {
        var parts = [H2OSession.Part]()
        if !isStopped { parts = add(decoder.finish()) + text(stops.finish()) }
        if usage.stop == .length, schema != nil {
            throw H2OSessionError.replyTooLong(atMost: usage.generatedTokens)
        }
        if usage.stop == .endOfTurn { try schema?.check(written) }
        return isRequiredCall ? parts + finishCall() : parts
    }

    /// Returns the parts that are complete with the token that ends the turn.
    mutating func end(with token: Int) -> [H2OSession.Part] {
        add(decoder.stop(at: token))
    }

    /// Whether the answer has begun without a thought before it.
    var hasAnswerWithoutThoughts: Bool {
        response.thoughts.isEmpty && !(response.content.isEmpty && response.toolCalls.isEmpty)
    }

    /// Tokens that end a turn, in addition to the model's own.
    var stopTokens: Set<Int> { decoder.stops }

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
                parts.append(add(call.id, call.function.name, call.function.arguments))
            case .malformedToolCall(let text):
                parts.append(add(malformed: text))
            }
        }
        return parts
    }

    private mutating func finishCall() -> [H2OSession.Part] {
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

    private mutating func text(_ new: String) -> [H2OSession.Part] {
        guard !new.isEmpty else { return [] }
        if schema != nil { written += new }
        guard !isRequiredCall else { return [] }
        response.content += new
        return [.text(new)]
    }
}

/// Makes the identifiers of calls unique in a transcript.
struct CallIdentifiers {
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
