/// A piece of a reply that `ReplyDecoder` returns.
public enum ReplyPiece: Hashable, Sendable {
    case text(String)
    /// Thoughts of the model before its answer.
    case thought(String)
    case toolCall(ToolCall)
    /// Text that looks like a tool call but cannot be parsed, was cut off or names an unknown tool,
    /// as the model wrote it.
    case malformedToolCall(String)
}
