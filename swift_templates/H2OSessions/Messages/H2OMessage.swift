/// One message of a conversation.
public struct H2OMessage: Hashable, Codable, Sendable {
    public enum Role: String, Hashable, Codable, Sendable {
        /// Instructions of the app. At most one, at the beginning.
        case system
        case user
        /// The model.
        case assistant
        /// What a tool answered to a call.
        case tool
    }

    public var role: Role
    public var text: String
    /// What an assistant thought before it answered.
    public var thoughts: String?
    /// The tools that an assistant calls.
    public var toolCalls: [H2OToolCall]
    /// The call that a tool answers.
    public var toolCallID: String?
    /// The tool that answers.
    public var toolName: String?

    public init(
        role: Role, text: String, thoughts: String? = nil, toolCalls: [H2OToolCall] = [],
        toolCallID: String? = nil, toolName: String? = nil
    ) {
        self.role = role
        self.text = text
        self.thoughts = thoughts
        self.toolCalls = toolCalls
        self.toolCallID = toolCallID
        self.toolName = toolName
    }

    public static func system(_ text: String) -> H2OMessage {
        H2OMessage(role: .system, text: text)
    }

    public static func user(_ text: String) -> H2OMessage {
        H2OMessage(role: .user, text: text)
    }

    public static func assistant(
        _ text: String, thoughts: String? = nil, toolCalls: [H2OToolCall] = []
    ) -> H2OMessage {
        H2OMessage(role: .assistant, text: text, thoughts: thoughts, toolCalls: toolCalls)
    }

    public static func tool(_ text: String, callID: String, name: String) -> H2OMessage {
        H2OMessage(role: .tool, text: text, toolCallID: callID, toolName: name)
    }
}
