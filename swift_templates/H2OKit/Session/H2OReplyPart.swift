import Foundation

/// A piece of a reply, as it is streamed.
public struct H2OReplyPart: Hashable, Sendable {
    /// What comes after the parts before; may be empty.
    public let text: String
    /// Of the reply so far.
    public let statistics: H2OReplyStatistics
}

/// What a reply took.
public struct H2OReplyStatistics: Hashable, Sendable {
    /// Tokens that were read for this reply, the system prompt's included in the first.
    public internal(set) var promptTokens: Int
    /// Tokens that were generated, the one that ends the turn included.
    public internal(set) var replyTokens: Int
    /// Seconds until the first token, waiting in the background included.
    public internal(set) var prefillSeconds: Double
    /// Seconds from the first token on.
    public internal(set) var decodeSeconds: Double
    /// Why the reply ended; nil while it goes on.
    public internal(set) var stop: Stop?

    public enum Stop: String, Hashable, Sendable {
        /// The model ended its turn.
        case endOfTurn
        /// `maxTokens` of the parameters.
        case length
        /// ``H2OSession/cancel()``, or nobody reads the stream any more.
        case cancelled
    }

    public init(
        promptTokens: Int = 0, replyTokens: Int = 0, prefillSeconds: Double = 0,
        decodeSeconds: Double = 0, stop: Stop? = nil
    ) {
        self.promptTokens = promptTokens
        self.replyTokens = replyTokens
        self.prefillSeconds = prefillSeconds
        self.decodeSeconds = decodeSeconds
        self.stop = stop
    }

    /// Tokens generated a second, the first one aside; 0 before the second.
    public var tokensPerSecond: Double {
        guard replyTokens > 1, decodeSeconds > 0 else { return 0 }
        return Double(replyTokens - 1) / decodeSeconds
    }
}
