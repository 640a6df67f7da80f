import Foundation

/// Why a session did not reply. That a model is not loaded is an `H2OLoadingError`.
public enum H2OSessionError: LocalizedError, Hashable, Sendable {
    /// Another reply is still being generated.
    case busy
    /// The prompt has no tokens.
    case emptyPrompt
    /// A field of ``H2OSampling`` has a value by which no token can be chosen.
    case invalidSampling(field: String, value: Float, allowed: ClosedRange<Float>)
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
    /// The model called tools once more after this many rounds.
    case tooManyToolRounds(Int)
    /// The model called a tool in a way that cannot be read, so that nobody can call it. It wrote
    /// this text.
    case malformedToolCall(String)
    /// A reply cannot be held to the JSON Schema.
    case invalidSchema(SchemaProblem)
    /// The shortest reply of the schema's form has more tokens than a reply may have; `tokens` are
    /// enough.
    case noRoomForSchema(tokens: Int, atMost: Int)
    /// This package's version of mlx-swift-lm has no grammar engine, which schemas need; `version`
    /// does.
    case noGrammarEngine(version: String)
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

    /// What is wrong with a JSON Schema. `place` is a JSON pointer into it; "" is the whole of it.
    public enum SchemaProblem: Hashable, Sendable {
        /// The text is not JSON, or an object in it has two members of one name.
        case notJSON
        /// The value of a keyword is not what JSON Schema asks for; `expected` says what that is.
        case notASchema(place: String, expected: String)
        /// No value has the form that is described there.
        case noInstance(place: String)
        /// The keyword, or its use together with the others there, cannot be held to.
        case unsupported(keyword: String, place: String)
        /// The grammar engine refuses the schema, for the reason that it gives.
        case refused(reason: String)
    }
}
