import MLX

/// The state of a cache and the two calls that a step makes on it.
///
/// In the shapes: B batch, Hq query heads, Hkv KV heads, L new tokens, C `maxSize`,
/// Dk and Dv the head dims of keys and values.
struct H2OCacheCore<Rows: H2ORows> {
    var configuration: H2OConfiguration

    /// Tokens seen so far, those whose attention is outstanding included.
    var offset = 0

    /// Written tokens whose attention is outstanding: none of them has a position yet,
    /// and nothing was evicted for several.
    var pending = 0

    var rows: Rows

    /// Nil while the cache is empty.
    var ledger: MLXFast.H2OLedger?

    /// Whether somebody else may hold the rows: the next write then copies them first.
    var isShared = false

    init(_ configuration: H2OConfiguration, _ rows: Rows) {
        self.configuration = configuration
        self.rows = rows
    }

    /// Whether the newest tokens can be dropped: until the first eviction.
    var isTrimmable: Bool { Rows.canBeTrimmed && offset <= configuration.maxSize }

    /// Rows in use: at most C, and more only while a chunk awaits its attention.
    var length: Int {
        pending > 0 ? step.lengthAfter(configuration.maxSize) : min(offset, configuration.maxSize)
    }

    /// The last write, whose attention is outstanding.
    private var step: H2OStep {
        H2OStep(
            tokens: pending, offset: offset - pending,
            length: min(offset - pending, configuration.maxSize))
    }

    /// Stores keys `[B, Hkv, L, Dk]` and values `[B, Hkv, L, Dv]`.
    mutating func write(keys: MLXArray, values: MLXArray) {
        settle()
        let ledger =
            self.ledger
            ?? MLXFast.h2oLedger(
                batch: keys.dim(0), kvHeads: keys.dim(1), keyDim: keys.dim(3),
                policy: configuration.policy)
        pending = keys.dim(2)
        offset += pending
        rows.write(
            keys: keys, values: values, victim: ledger.victim, step: step,
            policy: configuration.policy, copy: isShared)
        (self.ledger, isShared) = (ledger, false)
    }

    /// The outstanding tokens' attention `[B, Hq, L, Dv]` and all that follows from it; nil
    /// where it was computed elsewhere.
    @discardableResult
    mutating func settle(_ attention: H2OAttention = .elsewhere) -> MLXArray? {
        guard pending > 0, let ledger else { return nil }
        let attended = rows.attend(
            attention, ledger: ledger, step: step, policy: configuration.policy)
        self.ledger = attended.ledger
        pending = 0
        return attended.output
    }

    /// The keys and values in use after a write; the next write copies, as the caller holds them.
    mutating func fetch(keyDim: Int) -> (MLXArray, MLXArray) {
        isShared = true
        return rows.fetch(after: step, keyDim: keyDim, policy: configuration.policy)
    }

    /// Drops the newest `count` tokens of a complete cache; returns how many it dropped.
    mutating func trim(_ count: Int) -> Int {
        guard isTrimmable, count > 0 else { return 0 }
        settle()
        guard let ledger else { return 0 }
        let trimmed = min(count, offset)
        offset -= trimmed
        if offset == 0 {
            rows.restore(nil)
            self.ledger = nil
        } else {
            self.ledger = rows.trimmed(ledger, to: offset, policy: configuration.policy)
        }
        return trimmed
    }

    /// The buffers and the ledger's arrays, to be held by somebody else.
    mutating func share() -> [MLXArray] {
        guard let ledger else { return [] }
        isShared = true
        return rows.buffers + ledger.arrays
    }
}

extension MLXFast.H2OLedger {
    /// In the order of a saved cache.
    var arrays: [MLXArray] { [scores, positions, novelty, keySum, victim] }

    init(arrays: some Collection<MLXArray>) {
        let arrays = Array(arrays)
        self.init(
            scores: arrays[0], positions: arrays[1], novelty: arrays[2], keySum: arrays[3],
            victim: arrays[4])
    }
}
