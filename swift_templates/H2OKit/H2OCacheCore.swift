import MLX

/// The state of a cache and the two calls that a step makes on it.
///
/// In the shapes: B batch, Hq query heads, Hkv KV heads, L new tokens, C `maxSize`,
/// Dk and Dv the head dims of keys and values.
struct H2OCacheCore {
    var configuration: H2OConfiguration

    /// How the rows are stored. Its dtype is that of the first keys.
    var format: MLXFast.H2ORowFormat

    /// Tokens seen so far, those whose attention is outstanding included.
    var offset = 0

    /// Written tokens whose attention is outstanding: none of them has a position yet,
    /// and nothing was evicted for several.
    var pending = 0

    /// Nil while the cache is empty.
    var rows: MLXFast.H2ORows?

    /// Nil while the cache is empty.
    var ledger: MLXFast.H2OLedger?

    /// Dv of the first values, 0 before them.
    var valueDim = 0

    /// The archive and when it is asked; nil without recall and while the cache is empty.
    var recall: H2ORecallState?

    /// The arrays of an archive whose metadata is still to come.
    var restoredArchive = [MLXArray]()

    /// Whether recall was given up, for all time.
    var recallEnded = false

    /// Whether somebody else may hold the rows: the next write then copies them first.
    var isShared = false

    init(_ configuration: H2OConfiguration, _ format: MLXFast.H2ORowFormat) {
        self.configuration = configuration
        self.format = format
        configuration.warnOnce()
    }

    var hasRing: Bool { format.recentBits != nil }

    /// Whether the newest tokens can be dropped: until the first eviction. Never with a
    /// ring: what moved to the pool does not come back at the ring's precision. Nor once the
    /// archive has dropped its oldest tokens.
    var isTrimmable: Bool {
        !hasRing && offset <= configuration.maxSize && (recall?.archive.first ?? 0) == 0
    }

    /// Rows in use: at most C, and more only while a chunk awaits its attention.
    var length: Int {
        pending > 1
            ? min(offset - pending, configuration.maxSize) + pending
            : min(offset, configuration.maxSize)
    }

    /// Stores keys `[B, Hkv, L, Dk]` and values `[B, Hkv, L, Dv]`.
    mutating func write(keys: MLXArray, values: MLXArray) {
        settle()
        start(keys: keys, values: values)
        guard let ledger else { return }
        rows = MLXFast.h2oCacheWrite(
            rows: rows, keys: keys, values: values, victim: ledger.victim, offset: offset,
            policy: configuration.policy, format: format, copy: isShared)
        archive(keys: keys, values: values, keySum: ledger.keySum)
        pending = keys.dim(2)
        offset += pending
        isShared = false
    }

    /// Makes the ledger of an empty cache, and the archive if there is to be one.
    mutating func start(keys: MLXArray, values: MLXArray) {
        guard ledger == nil else { return }
        (format.dtype, valueDim) = (keys.dtype, values.dim(3))
        ledger = MLXFast.h2oLedger(
            batch: keys.dim(0), kvHeads: keys.dim(1), keyDim: keys.dim(3),
            policy: configuration.policy)
        startRecall(keyDim: keys.dim(3), valueDim: values.dim(3))
    }

    /// The attention `[B, Hq, L, Dv]` of the outstanding tokens' queries `[B, Hq, L, Dk]` and
    /// all that follows from it; nil where it was computed elsewhere.
    @discardableResult
    mutating func settle(
        queries: MLXArray? = nil, scale: Float = 1,
        mask: MLXFast.ScaledDotProductAttentionMaskMode = .none
    ) -> MLXArray? {
        guard pending > 0 else { return nil }
        if queries == nil { endRecallWithoutQueries() }
        guard let rows, let ledger else { return nil }
        let attended = MLXFast.h2oCacheAttend(
            queries: queries, rows: rows, ledger: ledger, tokens: pending,
            offset: offset - pending, scale: scale, mask: mask, policy: configuration.policy,
            format: format)
        (self.rows, self.ledger) = (attended.rows, attended.ledger)
        pending = 0
        return attended.output
    }

    /// The keys and values in use after a write; the next write copies, as the caller holds them.
    mutating func fetch(keyDim: Int) -> (MLXArray, MLXArray) {
        guard let rows else { return (.mlxNone, .mlxNone) }
        isShared = true
        return MLXFast.h2oCacheFetch(
            rows: rows, keyDim: keyDim, offset: offset - pending, tokens: pending,
            policy: configuration.policy, format: format)
    }

    /// Drops the newest `count` tokens of a complete cache; returns how many it dropped.
    mutating func trim(_ count: Int) -> Int {
        guard isTrimmable, count > 0 else { return 0 }
        settle()
        guard let rows, let ledger else { return 0 }
        let trimmed = min(count, offset)
        offset -= trimmed
        recall?.archive.trim(trimmed)
        if offset == 0 {
            (self.rows, self.ledger, recall) = (nil, nil, nil)
        } else {
            self.ledger = MLXFast.h2oLedgerTrim(
                ledger, rows: rows, length: offset, policy: configuration.policy, format: format)
        }
        return trimmed
    }

    /// The same cache again; rows are copied when one of the two writes, and segments of the
    /// archive are shared.
    mutating func copy() -> H2OCacheCore {
        _ = share()
        var copy = self
        if let archive = recall?.archive { copy.recall?.archive = archive.copy() }
        return copy
    }

    /// The buffers and the ledger's arrays, to be held by somebody else.
    mutating func share() -> [MLXArray] {
        guard let rows, let ledger else { return [] }
        isShared = true
        return rows.arrays + ledger.arrays
    }
}

extension MLXFast.H2ORows {
    /// In the order of a saved cache.
    var arrays: [MLXArray] { [pool] + (ring.map { [$0] } ?? []) }
}

extension MLXFast.H2OLedger {
    /// In the order of a saved cache.
    var arrays: [MLXArray] {
        [scores, positions, novelty, keySum, victim] + (held.map { [$0] } ?? [])
    }

    init(arrays: some Collection<MLXArray>) {
        let arrays = Array(arrays)
        self.init(
            scores: arrays[0], positions: arrays[1], novelty: arrays[2], keySum: arrays[3],
            victim: arrays[4], held: arrays.count > 5 ? arrays[5] : nil)
    }
}
