import Foundation
import H2OKit

/// Why a session did not reply. Errors of loading a model are `H2OLoadingError`.
public enum H2OSessionError: LocalizedError, Hashable, Sendable {
    /// Another reply is still being generated.
    case busy
    /// The prompt has no tokens.
    case emptyPrompt
    /// A field of ``H2OSampling`` has an impossible value.
    case invalidSampling(field: String, value: Float, allowed: ClosedRange<Float>)
    /// The system prompt, which is never evicted, does not fit into the cache together with
    /// sinks and recent tokens. Both values are numbers of tokens.
    case systemPromptTooLong(tokens: Int, atMost: Int)
    /// There is no reply yet, or the last reply ended with an error.
    case nothingToSave
    /// The new part of the conversation has more tokens than the model has positions.
    case promptTooLong(tokens: Int, atMost: Int)
    /// The message contains something that is not text, such as an image.
    case unsupportedInput(String)
    /// Two tools have this name.
    case duplicateTool(String)
    /// The model must call a tool, but there is none.
    case noToolToCall
    /// The session has tools, but the chat template of the model does not write them.
    case noTools(model: String)
    /// The session has a system prompt, but the chat template of the model does not write it.
    case noSystemPrompt(model: String)
    /// The model called tools once more after this many rounds.
    case tooManyToolRounds(Int)
    /// The model called a tool with this text, which cannot be parsed.
    case malformedToolCall(String)
    /// The JSON Schema cannot be used for replies.
    case invalidSchema(SchemaProblem)
    /// The reply is not a complete value of the schema after `atMost` tokens, the limit of the reply.
    case replyTooLong(atMost: Int)
    /// The reply is not a valid value of the schema, because the grammar engine allowed too much.
    /// `place` is a JSON pointer to the keyword in the schema that does not hold; "" for a reply
    /// that is not JSON.
    case replyBreaksSchema(place: String)
    /// The reply is valid, but the type whose value it should be refuses it, for this reason.
    case replyDoesNotFit(type: String, reason: String)
    /// No conversation can have these messages. `reason` names the message by its index, from 0.
    case contradictoryTranscript(reason: String)
    /// The device is in the thermal state `critical` and must cool down. A reply that has begun goes
    /// on.
    case tooHot
    /// The device is in Low Power Mode, and the request's options refuse it.
    case lowPowerMode
    /// A model of ``H2OModel/scripted(_:pace:)`` got more requests than its script has replies.
    case scriptEnded(replies: Int)

    /// What is wrong with a JSON Schema. `place` is a JSON pointer into it; "" for the whole
    /// schema.
    public enum SchemaProblem: Hashable, Sendable {
        /// The text is not JSON, or an object in it has two members with the same name.
        case notJSON
        /// The value of a keyword is not valid; `expected` describes valid values.
        case notASchema(place: String, expected: String)
        /// No value matches the schema at this place.
        case noInstance(place: String)
        /// The grammar engine does not follow this keyword, alone or together with the others at
        /// this place.
        case unsupported(keyword: String, place: String)
        /// The schema nests too deep, requires too much, or is too much work to read.
        case tooLarge(place: String)
        /// The schema does not follow from this type: it refers to itself, or decodes something
        /// that no schema describes.
        case notDerivable(type: String)
        /// The grammar engine refuses the schema and gives this reason.
        case refused(reason: String)
    }
}

extension H2OSessionError {
    public var errorDescription: String? {
        switch self {
        case .busy:
            "The session is generating a reply. Wait until its stream ends, or call cancel()."
        case .emptyPrompt:
            "The prompt is empty. Send a message that contains text."
        case .invalidSampling(let field, let value, let allowed):
            "\(field) is \(value), but must be \(allowed.lowerBound) or more"
                + (allowed.upperBound < .greatestFiniteMagnitude
                    ? " and at most \(allowed.upperBound)" : "")
                + ". Set it to an allowed value, or to nil for the model's own value."
        case .systemPromptTooLong(let tokens, let atMost):
            "The system prompt has \(tokens) tokens, but the cache can pin at most "
                + "\(max(0, atMost)) tokens. Shorten the system prompt, or package the model with a "
                + "larger --max-kv or a smaller --recent-budget."
        case .nothingToSave:
            "The session has no reply to save. Save it after its first reply."
        case .promptTooLong(let tokens, let atMost):
            "The prompt has \(tokens) tokens, but the model can read at most \(atMost) tokens. "
                + "Shorten the prompt, or split it into several messages."
        case .unsupportedInput(let kind):
            "The model reads only text, but the message has \(kind). Describe it in words, or "
                + "package a model that accepts it."
        case .duplicateTool(let name):
            "Two tools have the name \(name). Give each tool its own name."
        case .noToolToCall:
            "The model must call a tool, but the session has no tools. Give the session a tool, or "
                + "set requiresToolCall to false."
        case .noTools(let model):
            "The chat template of \(model) leaves out tools, so the model would not know them. Check "
                + "H2OModel.canCallTools before you give a session tools, or package a model whose "
                + "template writes them."
        case .noSystemPrompt(let model):
            "The chat template of \(model) leaves out system prompts, so the model would not read "
                + "it. Make a session without instructions and say them in the first message, or "
                + "package a model whose template writes them."
        case .tooManyToolRounds(let rounds):
            "The model still calls tools after \(rounds) rounds. Raise maxToolRounds, or say in the "
                + "instructions when the model must answer."
        case .malformedToolCall(let text):
            "The model's tool call cannot be parsed: \(text) Ask again, or simplify the description "
                + "of the tool's arguments."
        case .invalidSchema(let problem):
            problem.text
        case .replyTooLong(let most):
            "The reply is not a complete value of the schema after \(most) tokens. Raise maxTokens, "
                + "ask for a shorter reply, or require less in the schema."
        case .replyBreaksSchema(let place):
            "The reply is not valid: "
                + (place.isEmpty ? "it is not JSON." : "\(place) in the schema does not hold.")
                + " Ask again, or remove the keyword and check the value yourself."
        case .replyDoesNotFit(let type, let reason):
            "The reply is not a value of \(type). Ask again, or limit its generationSchema. "
                + "(\(reason))"
        case .contradictoryTranscript(let reason):
            "The transcript contradicts itself: \(reason)"
        case .tooHot:
            "The device is in the thermal state \"critical\". Ask again when "
                + "ProcessInfo.thermalState is lower."
        case .lowPowerMode:
            "The device is in Low Power Mode. Ask again when ProcessInfo.isLowPowerModeEnabled is "
                + "false, or set refusesInLowPowerMode to false."
        case .scriptEnded(let replies):
            "The script of the model has \(replies) replies, and this request needs one more. Give "
                + "H2OModel.scripted a reply for each request, and one for each round of tool calls."
        }
    }
}

extension H2OSessionError.SchemaProblem {
    fileprivate var text: String {
        switch self {
        case .notJSON:
            "The schema is not JSON, or an object in it has two members with the same name. Pass "
                + "the text of one JSON Schema."
        case .notASchema(let place, let expected):
            "\(Self.shown(place)) is not a valid JSON Schema. Expected: \(expected)."
        case .noInstance(let place):
            "\(Self.shown(place)) does not allow any value. Correct its limits. A schema that "
                + "refers to itself must allow a value without such a reference."
        case .unsupported(let keyword, let place):
            "\(Self.shown(place)) uses \"\(keyword)\" in a way that cannot be checked during "
                + "generation. Remove it, and check the complete value instead."
        case .tooLarge(let place):
            "\(Self.shown(place)) is too large. Make it shorter, nest it less, and ask for less."
        case .notDerivable(let type):
            "No schema follows from \(type), or from one of its properties. Implement its "
                + "generationSchema. Let enumerations have raw values and be CaseIterable."
        case .refused(let reason):
            "The grammar engine refuses the schema: \(reason). Simplify it."
        }
    }

    private static func shown(_ place: String) -> String {
        place.isEmpty ? "The schema" : "The schema at \(place)"
    }
}
