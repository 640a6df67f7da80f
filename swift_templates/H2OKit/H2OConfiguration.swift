import MLX

/// Which tokens an H2O cache keeps.
///
/// Importance decides what is evicted: a row's score, in relation to the largest
/// score of its head, plus `novelty` times how little its key resembles the keys
/// before it. Sinks, pinned positions and the newest positions are never evicted.
///
/// A configuration is valid from its making, and made the same way as Python's
/// `H2OConfig`; ``init(from:)`` and ``encode(to:)`` use Python's names.
public struct H2OConfiguration: Hashable, Sendable {
    public typealias Score = MLXFast.H2OPolicy.Score

    /// C: the rows that each KV head keeps.
    public let maxSize: Int
    /// Positions below this are never evicted.
    public let sinkSize: Int
    /// Rows for tokens that attention looks at.
    public let heavyBudget: Int
    /// The newest positions, never evicted.
    public let recentBudget: Int
    /// What of the attention is scored: the largest probability, the average
    /// probability or the average |logit|.
    public let score: Score
    /// Per query that sees a row, how much of its score remains, in 0...1.
    public let decay: Float
    /// Weight of a row's novelty, 0 for none.
    public let novelty: Float
    /// How much less than a typical key one must follow the mean of all keys before it
    /// counts as novel, a difference of cosines.
    public let noveltyMargin: Float
    /// Half-open ranges of positions that are never evicted.
    public let pinned: [Range<Int>]
    /// How many of a chunk's queries, its last ones, update scores.
    public let observationWindow: Int

    /// - Parameters:
    ///   - maxSize: see ``maxSize``
    ///   - sinkSize: see ``sinkSize``
    ///   - heavyBudget: nil for what sinks and recent tokens leave, or half of `maxSize`
    ///     where `recentBudget` is given
    ///   - recentBudget: nil for what is left by a given `heavyBudget`, else a quarter of
    ///     `maxSize`, but 64 where half of it holds as many
    ///   - score: see ``score``
    ///   - decay: nil for 0.97 with ``Score/peak``, else 0.95
    ///   - novelty: see ``novelty``
    ///   - noveltyMargin: see ``noveltyMargin``
    ///   - pinned: see ``pinned``
    ///   - observationWindow: see ``observationWindow``
    /// - Throws: ``H2OConfigurationError`` when the values do not fit together
    public init(
        maxSize: Int, sinkSize: Int = 4, heavyBudget: Int? = nil, recentBudget: Int? = nil,
        score: Score = .peak, decay: Float? = nil, novelty: Float = 2,
        noveltyMargin: Float = 0.25, pinned: [Range<Int>] = [], observationWindow: Int = 64
    ) throws {
        self.maxSize = maxSize
        self.sinkSize = sinkSize
        let left = maxSize - sinkSize - (heavyBudget ?? maxSize / 2)
        if heavyBudget == nil, recentBudget == nil {
            // A quarter for recent tokens, or as many as are safe; the rest is heavy hitters'.
            self.recentBudget = min(left, max(maxSize / 4, Self.safeRecentBudget))
            self.heavyBudget = maxSize - sinkSize - self.recentBudget
        } else {
            self.heavyBudget = heavyBudget ?? maxSize / 2
            self.recentBudget = recentBudget ?? left
        }
        self.score = score
        self.decay = decay ?? (score == .peak ? 0.97 : 0.95)
        self.novelty = novelty
        self.noveltyMargin = noveltyMargin
        self.pinned = pinned
        self.observationWindow = observationWindow
        try validate()
    }

    /// The policy as published: average |logit|, decay 0.95, no novelty
    /// (Zhang et al., "H2O: Heavy-Hitter Oracle", 2023).
    public static func paper(maxSize: Int) throws -> H2OConfiguration {
        try H2OConfiguration(
            maxSize: maxSize, heavyBudget: maxSize / 2, score: .absLogit, decay: 0.95, novelty: 0)
    }

    /// Reproductions of H2O lost coherence with fewer recent tokens.
    static let safeRecentBudget = 64

    var policy: MLXFast.H2OPolicy {
        MLXFast.H2OPolicy(
            maxSize: maxSize, sinkSize: sinkSize, heavyBudget: heavyBudget,
            recentBudget: recentBudget, score: score, decay: decay, novelty: novelty,
            noveltyMargin: noveltyMargin, pinned: pinned, observationWindow: observationWindow)
    }
}
