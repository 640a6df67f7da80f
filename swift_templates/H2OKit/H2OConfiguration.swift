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
    /// Half-open ranges of positions that are never evicted.
    public let pinned: [Range<Int>]
    /// How many of a chunk's queries, its last ones, update scores.
    public let observationWindow: Int
    /// 0 takes a key's difference as it is; above it, only what a key is off beyond a
    /// typical one and this margin counts, a difference of cosines.
    public let noveltyMargin: Float

    /// - Parameters:
    ///   - maxSize: see ``maxSize``
    ///   - sinkSize: see ``sinkSize``
    ///   - heavyBudget: nil for half of `maxSize`
    ///   - recentBudget: nil for what sinks and heavy hitters leave
    ///   - score: see ``score``
    ///   - decay: nil for 0.999 with ``Score/peak``, else 0.95
    ///   - novelty: see ``novelty``
    ///   - pinned: see ``pinned``
    ///   - observationWindow: see ``observationWindow``
    ///   - noveltyMargin: see ``noveltyMargin``
    /// - Throws: ``H2OConfigurationError`` when the values do not fit together
    public init(
        maxSize: Int, sinkSize: Int = 4, heavyBudget: Int? = nil, recentBudget: Int? = nil,
        score: Score = .peak, decay: Float? = nil, novelty: Float = 2,
        pinned: [Range<Int>] = [], observationWindow: Int = 64, noveltyMargin: Float = 0
    ) throws {
        self.maxSize = maxSize
        self.sinkSize = sinkSize
        self.heavyBudget = heavyBudget ?? maxSize / 2
        self.recentBudget = recentBudget ?? maxSize - sinkSize - self.heavyBudget
        self.score = score
        self.decay = decay ?? (score == .peak ? 0.999 : 0.95)
        self.novelty = novelty
        self.pinned = pinned
        self.observationWindow = observationWindow
        self.noveltyMargin = noveltyMargin
        try validate()
    }

    /// The policy as published: average |logit|, decay 0.95, no novelty
    /// (Zhang et al., "H2O: Heavy-Hitter Oracle", 2023).
    public static func paper(maxSize: Int) throws -> H2OConfiguration {
        try H2OConfiguration(maxSize: maxSize, score: .absLogit, decay: 0.95, novelty: 0)
    }

    /// A policy chosen on h2o-pack's small model, and measured on no other: a
    /// quarter of the rows for recent tokens, but 64 where half of them holds as many.
    public static func tuned(maxSize: Int) throws -> H2OConfiguration {
        let recent = min(max(maxSize / 4, safeRecentBudget), maxSize - 4 - maxSize / 2)
        return try H2OConfiguration(
            maxSize: maxSize, heavyBudget: recent > 0 ? maxSize - 4 - recent : nil,
            recentBudget: recent > 0 ? recent : nil, decay: 0.97, noveltyMargin: 0.25)
    }

    /// Reproductions of H2O lost coherence with fewer recent tokens.
    private static let safeRecentBudget = 64

    var policy: MLXFast.H2OPolicy {
        MLXFast.H2OPolicy(
            maxSize: maxSize, sinkSize: sinkSize, heavyBudget: heavyBudget,
            recentBudget: recentBudget, score: score, decay: decay, novelty: novelty,
            pinned: pinned, observationWindow: observationWindow, noveltyMargin: noveltyMargin)
    }
}
