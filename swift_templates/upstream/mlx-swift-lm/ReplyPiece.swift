/// A piece of a reply, as `ReplyDecoder` tells it from others.
public enum ReplyPiece: Hashable, Sendable {
    case text(String)
    /// What the model thinks before it answers.
    case thought(String)
    case toolCall(ToolCall)
    /// What looks like a call of a tool and is none: unreadable, cut off, or of a tool that
    /// there is not. As the model wrote it.
    case malformedToolCall(String)
}
