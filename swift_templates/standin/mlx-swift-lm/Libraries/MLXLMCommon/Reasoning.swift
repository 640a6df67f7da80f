// A stand-in for mlx-swift-lm's marks around thoughts.

/// How a chat template turns thinking on and off.
public enum ReasoningPromptStrategy: Sendable, Equatable {
    case templateFlag(key: String, defaultOn: Bool)
    case alwaysOn
    case none
}

/// The marks that enclose a model's thoughts.
public struct ReasoningConfig: Sendable, Equatable {
    public var startDelimiter: String
    public var endDelimiter: String
    public var promptStrategy: ReasoningPromptStrategy

    public init(
        startDelimiter: String, endDelimiter: String, promptStrategy: ReasoningPromptStrategy
    ) {
        self.startDelimiter = startDelimiter
        self.endDelimiter = endDelimiter
        self.promptStrategy = promptStrategy
    }

    public static let thinkTagsWithEnableThinking = ReasoningConfig(
        startDelimiter: "<think>", endDelimiter: "</think>",
        promptStrategy: .templateFlag(key: "enable_thinking", defaultOn: true))
}
