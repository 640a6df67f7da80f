import Cmlx

/// The H2O cache's functions. In their shapes: B batch, Hq query heads, Hkv KV
/// heads, L new tokens, N rows in use, C `maxSize`, Dk and Dv the head dims of keys
/// and values. A *position* is a token's index in the sequence, a *row* its place
/// in the buffer.
extension MLXFast {

    /// Attention that also returns its logits.
    ///
    /// - Parameters:
    ///   - queries: `[B, Hq, L, Dk]`
    ///   - keys: `[B, Hkv, N, Dk]`
    ///   - values: `[B, Hkv, N, Dv]`
    ///   - scale: factor of the logits, usually `1 / sqrt(Dk)`
    ///   - mask: an array (bool: true is seen; otherwise added) must broadcast to
    ///     `[B, Hq, L, N]`
    ///   - sinks: `[Hq]`, logits without a value
    ///   - stream: stream or device to evaluate on
    /// - Returns: the output `[B, Hq, L, Dv]` in the queries' dtype, and the scores
    ///   float32 `[B * Hq * L, N]`: `scale * q.k` plus an additive mask, the lowest
    ///   finite float where a row is hidden
    public static func scaledDotProductAttentionWithScores(
        queries: MLXArray, keys: MLXArray, values: MLXArray, scale: Float,
        mask: ScaledDotProductAttentionMaskMode, sinks: MLXArray? = nil,
        stream: StreamOrDevice = .default
    ) -> (MLXArray, MLXArray) {
        var output = mlx_array_new()
        var scores = mlx_array_new()
        mlx_fast_scaled_dot_product_attention_with_scores(
            &output, &scores, queries.ctx, keys.ctx, values.ctx, scale,
            mask.mode, (mask.mask ?? .mlxNone).ctx, (sinks ?? .mlxNone).ctx, stream.ctx)
        return (MLXArray(output), MLXArray(scores))
    }

    /// Which rows a cache keeps. The C core refuses values that do not fit together.
    public struct H2OPolicy: Sendable {
        /// How a row's score is made from the attention that it receives.
        public enum Score: String, Codable, Sendable, CaseIterable {
            case peak
            case softmax
            case absLogit = "abs_logit"
        }

        /// C: the rows a KV head may keep.
        public var maxSize: Int
        /// Positions below this are never evicted.
        public var sinkSize: Int
        /// Rows for heavy hitters.
        public var heavyBudget: Int
        /// The newest positions, never evicted.
        public var recentBudget: Int
        public var score: Score
        /// Per query that sees a row, in 0...1.
        public var decay: Float
        /// Weight of a row's novelty in its importance, 0 for none.
        public var novelty: Float
        /// Half-open ranges of positions that are never evicted.
        public var pinned: [Range<Int>]
        /// The queries of a chunk that update scores.
        public var observationWindow: Int

        public init(
            maxSize: Int, sinkSize: Int, heavyBudget: Int, recentBudget: Int, score: Score,
            decay: Float, novelty: Float, pinned: [Range<Int>], observationWindow: Int
        ) {
            self.maxSize = maxSize
            self.sinkSize = sinkSize
            self.heavyBudget = heavyBudget
            self.recentBudget = recentBudget
            self.score = score
            self.decay = decay
            self.novelty = novelty
            self.pinned = pinned
            self.observationWindow = observationWindow
        }
    }

    /// What is known about each row of a cache.
    public struct H2OLedger {
        /// float32 `[B, Hkv, C]`, -1 where not yet observed.
        public var scores: MLXArray
        /// int32 `[B, Hkv, C]`, -1 where the row is empty.
        public var positions: MLXArray
        /// float32 `[B, Hkv, C]`.
        public var novelty: MLXArray
        /// float32 `[B, Hkv, Dk]`, the sum of all unit keys so far.
        public var keySum: MLXArray
        /// int32 `[B, Hkv]`, the row that the next token takes.
        public var victim: MLXArray

        public init(
            scores: MLXArray, positions: MLXArray, novelty: MLXArray, keySum: MLXArray,
            victim: MLXArray
        ) {
            self.scores = scores
            self.positions = positions
            self.novelty = novelty
            self.keySum = keySum
            self.victim = victim
        }
    }

    /// The ledger of an empty cache.
    public static func h2oLedger(
        batch: Int, kvHeads: Int, keyDim: Int, policy: H2OPolicy, stream: StreamOrDevice = .default
    ) -> H2OLedger {
        var ledger = mlx_h2o_ledger()
        policy.withConfig { config in
            mlx_h2o_ledger_init(
                &ledger, Int32(batch), Int32(kvHeads), Int32(keyDim), config, stream.ctx)
        }
        return H2OLedger(owning: ledger)
    }

    /// The ledger after the rows from `length` on were dropped again. Only right for
    /// a cache that has not evicted.
    public static func h2oLedgerTrim(
        _ ledger: H2OLedger, rows: MLXArray, length: Int, policy: H2OPolicy,
        stream: StreamOrDevice = .default
    ) -> H2OLedger {
        var result = mlx_h2o_ledger()
        policy.withConfig { config in
            mlx_h2o_ledger_trim(
                &result, rows.ctx, ledger.borrowed, Int32(length), config, stream.ctx)
        }
        return H2OLedger(owning: result)
    }

    /// Puts new tokens into the rows: after the last row in use, or, a single token
    /// of a full cache, over `victim`. The buffer grows in steps of 256 rows.
    ///
    /// - Parameters:
    ///   - rows: `[B, Hkv, capacity, Dk + Dv]`, nil for an empty cache. The result
    ///     shares this buffer, so nothing else may read it any more, unless `copy`
    ///   - keys: `[B, Hkv, L, Dk]`, after RoPE
    ///   - values: `[B, Hkv, L, Dv]`
    ///   - victim: the ledger's
    ///   - length: rows in use before
    ///   - copy: write into a copy of `rows`
    ///   - policy: see ``H2OPolicy``
    ///   - stream: stream or device to evaluate on
    /// - Returns: the new rows
    public static func h2oCacheWrite(
        rows: MLXArray?, keys: MLXArray, values: MLXArray, victim: MLXArray, length: Int,
        policy: H2OPolicy, copy: Bool = false, stream: StreamOrDevice = .default
    ) -> MLXArray {
        var result = mlx_array_new()
        policy.withConfig { config in
            mlx_h2o_cache_write(
                &result, (rows ?? .mlxNone).ctx, keys.ctx, values.ctx, victim.ctx, Int32(length),
                config, copy, stream.ctx)
        }
        return MLXArray(result)
    }

    /// Attention of the newest tokens over the rows in use, and what follows from it:
    /// scores, novelty, the next victim and, if a chunk overflowed C, eviction.
    ///
    /// - Parameters:
    ///   - queries: `[B, Hq, tokens, Dk]`; nil if the attention was computed
    ///     elsewhere: then no row is observed and there is no output
    ///   - rows: the result of the write
    ///   - ledger: as it was before the write
    ///   - tokens: how many were written
    ///   - offset: tokens seen before the write
    ///   - length: rows in use before the write
    ///   - scale: factor of the logits, usually `1 / sqrt(Dk)`
    ///   - mask: an array must broadcast to `[B, Hq, tokens, N]`
    ///   - sinks: `[Hq]`, logits without a value
    ///   - policy: see ``H2OPolicy``
    ///   - stream: stream or device to evaluate on
    /// - Returns: the output `[B, Hq, tokens, Dv]` in the queries' dtype, the rows
    ///   (the given ones unless a chunk was evicted from) and the ledger
    public static func h2oCacheAttend(
        queries: MLXArray?, rows: MLXArray, ledger: H2OLedger, tokens: Int, offset: Int,
        length: Int, scale: Float, mask: ScaledDotProductAttentionMaskMode,
        sinks: MLXArray? = nil, policy: H2OPolicy, stream: StreamOrDevice = .default
    ) -> (output: MLXArray?, rows: MLXArray, ledger: H2OLedger) {
        var output = mlx_array_new()
        var newRows = mlx_array_new()
        var newLedger = mlx_h2o_ledger()
        policy.withConfig { config in
            mlx_h2o_cache_attend(
                &output, &newRows, &newLedger, (queries ?? .mlxNone).ctx, rows.ctx,
                ledger.borrowed, Int32(tokens), Int32(offset), Int32(length), scale,
                mask.mode, (mask.mask ?? .mlxNone).ctx, (sinks ?? .mlxNone).ctx, config, stream.ctx)
        }
        return (
            queries == nil ? nil : MLXArray(output), MLXArray(newRows), H2OLedger(owning: newLedger)
        )
    }
}

extension MLXFast.H2OPolicy {
    fileprivate func withConfig(_ body: (mlx_h2o_config) -> Void) {
        let bounds = pinned.flatMap { [Int32($0.lowerBound), Int32($0.upperBound)] }
        bounds.withUnsafeBufferPointer { bounds in
            body(
                mlx_h2o_config(
                    max_size: Int32(maxSize), sink_size: Int32(sinkSize),
                    heavy_budget: Int32(heavyBudget), recent_budget: Int32(recentBudget),
                    score: score.cValue, decay: decay, novelty: novelty,
                    observation_window: Int32(observationWindow), pinned: bounds.baseAddress,
                    pinned_num: pinned.count, key_bits: 16, value_bits: 16, group_size: 64,
                    dtype: MLX_FLOAT32))
        }
    }
}

extension MLXFast.H2OPolicy.Score {
    fileprivate var cValue: mlx_h2o_score {
        switch self {
        case .peak: MLX_H2O_SCORE_PEAK
        case .softmax: MLX_H2O_SCORE_SOFTMAX
        case .absLogit: MLX_H2O_SCORE_ABS_LOGIT
        }
    }
}

extension MLXFast.H2OLedger {
    /// Takes over the arrays of a C ledger, which must not be freed then.
    fileprivate init(owning ledger: mlx_h2o_ledger) {
        self.init(
            scores: MLXArray(ledger.scores), positions: MLXArray(ledger.positions),
            novelty: MLXArray(ledger.novelty), keySum: MLXArray(ledger.key_sum),
            victim: MLXArray(ledger.victim))
    }

    /// The same arrays for a C call that reads them.
    fileprivate var borrowed: mlx_h2o_ledger {
        mlx_h2o_ledger(
            scores: scores.ctx, positions: positions.ctx, novelty: novelty.ctx,
            key_sum: keySum.ctx, victim: victim.ctx)
    }
}
