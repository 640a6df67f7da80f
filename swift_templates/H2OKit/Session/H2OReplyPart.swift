import Foundation

/// A piece of a reply, as it is streamed.
public struct H2OReplyPart: Hashable, Sendable {
    /// The text that follows the earlier parts; may be empty.
    public let text: String
    /// Statistics of the reply so far.
    public let statistics: H2OReplyStatistics
}

/// Tokens and seconds of a reply.
public struct H2OReplyStatistics: Hashable, Sendable {
    /// Tokens read for this reply. In the first reply they include the system prompt.
    public internal(set) var promptTokens: Int
    /// Tokens generated, including the one that ends the turn.
    public internal(set) var replyTokens: Int
    /// Seconds until the first token, including time spent in the background.
    public internal(set) var prefillSeconds: Double
    /// Seconds from the first token on.
    public internal(set) var decodeSeconds: Double
    /// What recall did for this reply; its seconds are part of those above. nil without recall.
    public internal(set) var recall: H2ORecallStatistics?
    /// Why the reply ended; nil while it continues.
    public internal(set) var stop: Stop?

    public enum Stop: String, Hashable, Sendable {
        /// The model ended its turn.
        case endOfTurn
        /// The reply reached `maxTokens` of the parameters.
        case length
        /// ``H2OSession/cancel()`` was called, or the stream has no reader anymore.
        case cancelled
    }

    public init(
        promptTokens: Int = 0, replyTokens: Int = 0, prefillSeconds: Double = 0,
        decodeSeconds: Double = 0, recall: H2ORecallStatistics? = nil, stop: Stop? = nil
    ) {
        self.promptTokens = promptTokens
        self.replyTokens = replyTokens
        self.prefillSeconds = prefillSeconds
        self.decodeSeconds = decodeSeconds
        self.recall = recall
        self.stop = stop
    }

    /// Tokens generated per second, not counting the first; 0 until there are two tokens.
    public var tokensPerSecond: Double {
        guard replyTokens > 1, decodeSeconds > 0 else { return 0 }
        return Double(replyTokens - 1) / decodeSeconds
    }
}
