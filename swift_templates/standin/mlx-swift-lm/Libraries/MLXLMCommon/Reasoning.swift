// A stand-in for the readers of thoughts of mlx-swift-lm: the marks around thoughts, and the type that
// separates thoughts from text.

import Foundation

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

/// Separates thoughts from text. White space beside a mark belongs to neither.
public struct ReasoningEventEmitter: Sendable {
    public enum Segment: Sendable, Equatable {
        case reasoning(String)
        case response(String)
    }

    private let config: ReasoningConfig
    public private(set) var isInsideReasoning: Bool
    /// Text that may be the beginning of a mark.
    private var held = ""
    /// Whether white space at the beginning of the next segment follows a mark.
    private var isAfterMark = false

    public init(config: ReasoningConfig, primedInside: Bool) {
        self.config = config
        isInsideReasoning = primedInside
    }

    /// Whether the end of a prompt begins a thought.
    public static func promptEndsInsideReasoning(
        renderedPromptTail tail: String, config: ReasoningConfig
    ) -> Bool {
        guard let start = tail.range(of: config.startDelimiter, options: .backwards) else {
            return false
        }
        return !tail[start.upperBound...].contains(config.endDelimiter)
    }

    public mutating func process(_ chunk: String) -> [Segment] {
        var rest = held + chunk
        var segments = [Segment]()
        while let range = rest.range(of: mark) {
            add(String(rest[..<range.lowerBound]), isBeforeMark: true, to: &segments)
            rest = String(rest[range.upperBound...])
            isInsideReasoning.toggle()
            isAfterMark = true
        }
        let unsure = (1 ..< mark.count).last { rest.hasSuffix(mark.prefix($0)) } ?? 0
        add(String(rest.dropLast(unsure)), to: &segments)
        held = String(rest.suffix(unsure))
        return segments
    }

    /// Returns the text that was held back.
    public mutating func finalize() -> [Segment] {
        var segments = [Segment]()
        add(held, isBeforeMark: true, to: &segments)
        held = ""
        return segments
    }

    /// The next mark.
    private var mark: String { isInsideReasoning ? config.endDelimiter : config.startDelimiter }

    private mutating func add(
        _ text: String, isBeforeMark: Bool = false, to segments: inout [Segment]
    ) {
        var text = text[...]
        if isAfterMark { text = text.drop { $0.isWhitespace } }
        while isBeforeMark, text.last?.isWhitespace == true { text.removeLast() }
        guard !text.isEmpty else { return }
        isAfterMark = false
        segments.append(isInsideReasoning ? .reasoning(String(text)) : .response(String(text)))
    }
}
