import Foundation

extension H2OSessionError {
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
        case .contradictoryTranscript(let contradiction):
            "The transcript contradicts itself: \(contradiction.text)"
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
        case .refused(let reason):
            "The grammar engine refuses the schema: \(reason). Simplify it."
        }
    }

    private static func shown(_ place: String) -> String {
        place.isEmpty ? "The schema" : "The schema at \(place)"
    }
}

extension H2OSessionError.Contradiction {
    fileprivate var text: String {
        switch self {
        case .endsWith(let role):
            "its last message is of the role \(role.rawValue), and a reply follows a user's "
                + "message or a tool's answer. Add one, or remove the last message."
        case .systemMessage(let index):
            "message \(index) is of the role system, and only the first may be. Put it first, "
                + "or give it another role."
        case .unaskedAnswer(let id, let index):
            "message \(index) answers the tool call \"\(id)\", which is not open there. Put it "
                + "after the message that calls, once per call."
        case .unansweredCall(let id, let index):
            "the tool call \"\(id)\" has no answer before message \(index). Add the answer, or "
                + "remove the call."
        case .repeatedCall(let id, let index):
            "message \(index) calls with the identifier \"\(id)\", which an earlier call has. "
                + "Give each call its own."
        }
    }
}
