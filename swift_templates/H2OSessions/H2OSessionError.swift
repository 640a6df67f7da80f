import Foundation

/// Why a session did not reply. That a model is not loaded is an `H2OLoadingError`.
public enum H2OSessionError: LocalizedError, Hashable, Sendable {
    /// Another reply is still being generated.
    case busy
    /// The prompt has no tokens.
    case emptyPrompt
    /// The system prompt, which is never evicted, does not fit into the cache together with
    /// sinks and recent tokens. Both values are numbers of tokens.
    case systemPromptTooLong(tokens: Int, atMost: Int)
    /// There is no reply yet, or the last one ended with an error.
    case nothingToSave
    /// The new part of the conversation has more tokens than the model has positions.
    case promptTooLong(tokens: Int, atMost: Int)
    /// The model reads text, and the message has something else, such as an image.
    case unsupportedInput(String)
    /// Two tools have this name.
    case duplicateTool(String)
    /// The model must call a tool, and there is none.
    case noToolToCall
    /// A JSON Schema that is none; says what is wrong.
    case invalidSchema(String)
    /// The model called tools once more after this many rounds.
    case tooManyToolRounds(Int)
    /// No conversation can have gone as the transcript says.
    case contradictoryTranscript(Contradiction)

    /// Indices are those of messages.
    public enum Contradiction: Hashable, Sendable {
        /// There is nothing to answer after a message of this role.
        case endsWith(H2OMessage.Role)
        /// A system message that is not the first one.
        case systemMessage(at: Int)
        /// A tool's answer to a call that was not made, or was answered before.
        case unaskedAnswer(id: String, at: Int)
        /// A call that is not answered when another message follows.
        case unansweredCall(id: String, at: Int)
        /// A call with the identifier of an earlier one.
        case repeatedCall(id: String, at: Int)
    }

    public var errorDescription: String? {
        switch self {
        case .busy:
            "The session is generating a reply. Wait until its stream ends, or call cancel()."
        case .emptyPrompt:
            "The prompt is empty. Ask with a message that has text."
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
        case .invalidSchema(let reason):
            "\(reason) Write it as a JSON Schema, with \"type\" and the fields that belong to it."
        case .tooManyToolRounds(let rounds):
            "The model still calls tools after \(rounds) rounds. Raise maxToolRounds, or tell it "
                + "in the instructions when to answer."
        case .contradictoryTranscript(let contradiction):
            "The transcript contradicts itself: \(contradiction.text)"
        }
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
