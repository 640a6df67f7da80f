/// What a conversation knows besides its caches.
package struct ConversationState: Codable, Hashable, Sendable {
    /// The tokens in the caches.
    package var read = TokenLedger()
    /// The messages that the caches and ``unread`` stand for.
    package var chain: TranscriptChain.Head
    /// Tokens that come next, in no cache yet.
    package var unread = [Int]()
    /// Whether the last reply ended with a stop token.
    package var ended = true
    /// Positions of the system prompt.
    package var pinned = 0 ..< 0

    package init(chain: TranscriptChain.Head) {
        self.chain = chain
    }
}
