import MLX

/// The rows of a cache, their ledger, and the two calls that a step makes on them.
///
/// In the shapes: B batch, Hq query heads, Hkv KV heads, L new tokens, C `maxSize`,
/// Dk and Dv the head dims of keys and values.
struct H2OCacheStorage {
    var configuration: H2OConfiguration

    /// Tokens seen so far, those whose attention is outstanding included.
    var offset = 0

    /// Written tokens whose attention is outstanding: none of them has a position yet,
    /// and nothing was evicted for several.
    var pending = 0

    /// `[B, Hkv, capacity, Dk + Dv]`, nil while the cache is empty.
    var rows: MLXArray?

    var ledger: MLXFast.H2OLedger?

    /// Whether somebody else may hold `rows`: the next write then copies them first.
    var isShared = false

    init(configuration: H2OConfiguration) {
        self.configuration = configuration
    }

    /// False once the rows are no longer the positions.
    var isComplete: Bool { offset <= configuration.maxSize }

    /// Rows in use: at most C, and more only while a chunk awaits its attention.
    var length: Int {
        pending > 1 ? lengthBefore + pending : min(offset, configuration.maxSize)
    }

    /// Rows in use before the outstanding tokens were written.
    private var lengthBefore: Int { min(offset - pending, configuration.maxSize) }

    /// Stores keys `[B, Hkv, L, Dk]` and values `[B, Hkv, L, Dv]`; returns the buffer.
    @discardableResult
    mutating func write(keys: MLXArray, values: MLXArray) -> MLXArray {
        settle()
        let ledger =
            self.ledger
            ?? MLXFast.h2oLedger(
                batch: keys.dim(0), kvHeads: keys.dim(1), keyDim: keys.dim(3),
                policy: configuration.policy)
        let rows = MLXFast.h2oCacheWrite(
            rows: rows, keys: keys, values: values, victim: ledger.victim, length: length,
            policy: configuration.policy, copy: isShared)
        (self.rows, self.ledger, isShared) = (rows, ledger, false)
        pending = keys.dim(2)
        offset += pending
        return rows
    }

    /// The attention of the outstanding tokens, `[B, Hq, L, Dv]`, and all that follows
    /// from it. Without queries `[B, Hq, L, Dk]` nothing is scored and nil returned.
    @discardableResult
    mutating func settle(
        queries: MLXArray? = nil, scale: Float = 1,
        mask: MLXFast.ScaledDotProductAttentionMaskMode = .none
    ) -> MLXArray? {
        guard pending > 0, let rows, let ledger else { return nil }
        let attended = MLXFast.h2oCacheAttend(
            queries: queries, rows: rows, ledger: ledger, tokens: pending,
            offset: offset - pending, length: lengthBefore, scale: scale, mask: mask,
            policy: configuration.policy)
        (self.rows, self.ledger) = (attended.rows, attended.ledger)
        pending = 0
        return attended.output
    }

    /// Drops the newest `count` tokens of a complete cache; returns how many it dropped.
    mutating func trim(_ count: Int) -> Int {
        guard isComplete, count > 0 else { return 0 }
        settle()
        guard let rows, let ledger else { return 0 }
        let trimmed = min(count, offset)
        offset -= trimmed
        if offset == 0 {
            (self.rows, self.ledger) = (nil, nil)
        } else {
            self.ledger = MLXFast.h2oLedgerTrim(
                ledger, rows: rows, length: offset, policy: configuration.policy)
        }
        return trimmed
    }

    /// The buffer and the ledger's arrays, to be held by somebody else.
    mutating func share() -> [MLXArray] {
        guard let rows, let ledger else { return [] }
        isShared = true
        return [rows] + ledger.arrays
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
