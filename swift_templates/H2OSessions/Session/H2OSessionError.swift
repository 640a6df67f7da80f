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
    /// There is no reply yet, or the last one ended with an error.
    case nothingToSave
    /// The new part of the conversation has more tokens than the model has positions.
    case promptTooLong(tokens: Int, atMost: Int)
    /// The message contains something else than text, such as an image.
    case unsupportedInput(String)
    /// Two tools have this name.
    case duplicateTool(String)
    /// The model must call a tool, but there is none.
    case noToolToCall
    /// The model called tools once more after this many rounds.
    case tooManyToolRounds(Int)
    /// The model called a tool with this text, which cannot be parsed.
    case malformedToolCall(String)
    /// The JSON Schema cannot be used for replies.
    case invalidSchema(SchemaProblem)
    /// The shortest reply that follows the schema has more tokens than a reply may have; `tokens`
    /// would be enough.
    case noRoomForSchema(tokens: Int, atMost: Int)
    /// This package's version of mlx-swift-lm has no grammar engine, which schemas need; `version`
    /// has one.
    case noGrammarEngine(version: String)
    /// No conversation can have these messages. `reason` names the message, from 0.
    case contradictoryTranscript(reason: String)
    /// The app is in the background, where it may not use the GPU, and `BackgroundGuard.system`
    /// refuses to wait.
    case inBackground

    /// What is wrong with a JSON Schema. `place` is a JSON pointer into it; "" for the whole
    /// schema.
    public enum SchemaProblem: Hashable, Sendable {
        /// The text is not JSON, or an object in it has two members with the same name.
        case notJSON
        /// The value of a keyword is not valid; `expected` describes valid values.
        case notASchema(place: String, expected: String)
        /// No value matches the schema at this place.
        case noInstance(place: String)
        /// Replies cannot follow this keyword, alone or together with the others at this place.
        case unsupported(keyword: String, place: String)
        /// The schema nests too deep, requires too much, or is too much work to read.
        case tooLarge(place: String)
        /// The grammar engine refuses the schema and gives this reason.
        case refused(reason: String)
    }
}

extension H2OSessionError {
    public var recoverySuggestion: String? {
        self == .inBackground ? InBackgroundError().recoverySuggestion : nil
    }

    public var errorDescription: String? {
        switch self {
        case .busy:
            "The session is generating a reply. Wait until its stream ends, or call cancel()."
        case .emptyPrompt:
            "The prompt is empty. Ask with a message that has text."
        case .invalidSampling(let field, let value, let allowed):
            "\(field) is \(value), and must be \(allowed.lowerBound) or more"
                + (allowed.upperBound < .greatestFiniteMagnitude
                    ? " and at most \(allowed.upperBound)" : "")
                + ". Set it to such a value, or to nil for the model's own."
        case .systemPromptTooLong(let tokens, let atMost):
            "The system prompt has \(tokens) tokens, and the cache can pin \(max(0, atMost)) of "
                + "them. Shorten it, or package the model with a larger --max-kv or a smaller "
                + "--recent-budget."
        case .nothingToSave:
            "The session has no reply to save. Save it after one."
        case .promptTooLong(let tokens, let atMost):
            "The prompt has \(tokens) tokens, and the model was made for \(atMost). Shorten it, or "
                + "give it in several messages."
        case .unsupportedInput(let kind):
            "The model reads text, and the message has \(kind). Describe it in words, or package "
                + "a model that takes it."
        case .duplicateTool(let name):
            "Two tools have the name \(name). Give each tool a name of its own."
        case .noToolToCall:
            "The model must call a tool, and the session has none. Give it one, or leave "
                + "requiresToolCall out."
        case .tooManyToolRounds(let rounds):
            "The model still calls tools after \(rounds) rounds. Raise maxToolRounds, or tell it "
                + "in the instructions when to answer."
        case .malformedToolCall(let text):
            "The model called a tool in a way that cannot be read: \(text) Ask again, or describe "
                + "the tool's arguments more simply."
        case .invalidSchema(let problem):
            problem.text
        case .noRoomForSchema(let tokens, let most):
            "A reply in the form of the schema has \(tokens) tokens or more, and \(most) are "
                + "allowed. Raise maxTokens or ask for less."
        case .noGrammarEngine(let version):
            "This package's version of mlx-swift-lm has no grammar engine. Package the model with "
                + "--upstream-version \(version)."
        case .contradictoryTranscript(let reason):
            "The transcript contradicts itself: \(reason)"
        case .inBackground:
            InBackgroundError().errorDescription
        }
    }
}

extension H2OSessionError.SchemaProblem {
    fileprivate var text: String {
        switch self {
        case .notJSON:
            "The schema is not JSON, or an object in it has two members of one name. Give the "
                + "text of one JSON Schema."
        case .notASchema(let place, let expected):
            "\(Self.shown(place)) is not as in a JSON Schema. Expected is \(expected)."
        case .noInstance(let place):
            "\(Self.shown(place)) describes a value that cannot exist. Correct its limits, or "
                + "give what refers to itself a way to end."
        case .unsupported(let keyword, let place):
            "\(Self.shown(place)) uses \"\(keyword)\" in a way that generated text cannot be held "
                + "to. Leave it out, and check the finished value for it."
        case .tooLarge(let place):
            "\(Self.shown(place)) is too large. Make it shorter, nest it less, and ask for less."
        case .refused(let reason):
            "The grammar engine refuses the schema: \(reason). Simplify it."
        }
    }

    private static func shown(_ place: String) -> String {
        place.isEmpty ? "The schema" : "The schema at \(place)"
    }
}
