import Cmlx

/// The functions of a cache of two precisions. Its ledger's rows are the pool's, then
/// the ring's slots; the token of position p lies in slot `p % recentBudget` until as
/// many newer ones have come. Shapes as in `MLXFast+H2OCache.swift`.
extension MLXFast {

    /// ``h2oCacheWrite(rows:keys:values:victim:length:policy:format:copy:stream:)`` for a
    /// pool and a ring: one token takes the slot of the oldest recent one, which moves
    /// to the pool; several wait behind the ring until their attention.
    ///
    /// - Parameters:
    ///   - rows: nil for an empty cache. The result shares these buffers, so nothing else
    ///     may read them any more, unless `copy`
    ///   - keys: `[B, Hkv, L, Dk]`, after RoPE
    ///   - values: `[B, Hkv, L, Dv]`
    ///   - victim: the ledger's
    ///   - offset: tokens seen before
    ///   - policy: see ``H2OPolicy``
    ///   - format: see ``H2OMixedFormat``
    ///   - copy: write into copies of `rows`
    ///   - stream: stream or device to evaluate on
    /// - Returns: the new rows
    public static func h2oMixedCacheWrite(
        rows: H2OMixedRows?, keys: MLXArray, values: MLXArray, victim: MLXArray, offset: Int,
        policy: H2OPolicy, format: H2OMixedFormat, copy: Bool = false,
        stream: StreamOrDevice = .default
    ) -> H2OMixedRows {
        var pool = mlx_array_new()
        var ring = mlx_array_new()
        policy.withConfig(format) { config, mixed in
            mlx_h2o_mixed_cache_write(
                &pool, &ring, (rows?.pool ?? .mlxNone).ctx, (rows?.ring ?? .mlxNone).ctx,
                keys.ctx, values.ctx, victim.ctx, Int32(offset), config, mixed, copy, stream.ctx)
        }
        return H2OMixedRows(pool: MLXArray(pool), ring: MLXArray(ring))
    }

    /// ``h2oCacheAttend(queries:rows:ledger:tokens:offset:length:scale:mask:sinks:policy:format:stream:)``
    /// for a pool and a ring, whose attentions are merged by their log-sum-exp.
    ///
    /// - Parameters:
    ///   - queries: `[B, Hq, tokens, Dk]`; nil if the attention was computed elsewhere:
    ///     then no row is observed and there is no output
    ///   - rows: the result of the write
    ///   - ledger: as it was before the write
    ///   - tokens: how many were written
    ///   - offset: tokens seen before the write
    ///   - valueDim: Dv
    ///   - scale: factor of the logits, usually `1 / sqrt(Dk)`
    ///   - mask: an array must broadcast to `[B, Hq, tokens, N]`
    ///   - sinks: `[Hq]`, logits without a value
    ///   - policy: see ``H2OPolicy``
    ///   - format: see ``H2OMixedFormat``
    ///   - stream: stream or device to evaluate on
    /// - Returns: the output `[B, Hq, tokens, Dv]` in the queries' dtype, the rows (the
    ///   given ones unless a chunk was sorted into them) and the ledger
    public static func h2oMixedCacheAttend(
        queries: MLXArray?, rows: H2OMixedRows, ledger: H2OLedger, tokens: Int, offset: Int,
        valueDim: Int, scale: Float, mask: ScaledDotProductAttentionMaskMode,
        sinks: MLXArray? = nil, policy: H2OPolicy, format: H2OMixedFormat,
        stream: StreamOrDevice = .default
    ) -> (output: MLXArray?, rows: H2OMixedRows, ledger: H2OLedger) {
        var output = mlx_array_new()
        var pool = mlx_array_new()
        var ring = mlx_array_new()
        var newLedger = mlx_h2o_ledger()
        policy.withConfig(format) { config, mixed in
            mlx_h2o_mixed_cache_attend(
                &output, &pool, &ring, &newLedger, (queries ?? .mlxNone).ctx, rows.pool.ctx,
                rows.ring.ctx, ledger.borrowed, Int32(tokens), Int32(offset), Int32(valueDim),
                scale, mask.mode, (mask.mask ?? .mlxNone).ctx, (sinks ?? .mlxNone).ctx, config,
                mixed, stream.ctx)
        }
        return (
            queries == nil ? nil : MLXArray(output),
            H2OMixedRows(pool: MLXArray(pool), ring: MLXArray(ring)),
            H2OLedger(owning: newLedger)
        )
    }

    /// The keys and values in use, those of the pool first, for attention that is computed
    /// elsewhere.
    ///
    /// - Parameters:
    ///   - rows: the cache's
    ///   - pooled: rows of the pool in use
    ///   - ringed: rows of the ring in use
    ///   - keyDim: Dk
    ///   - policy: see ``H2OPolicy``
    ///   - format: see ``H2OMixedFormat``
    ///   - stream: stream or device to evaluate on
    /// - Returns: keys `[B, Hkv, N, Dk]` and values `[B, Hkv, N, Dv]` in the format's dtype
    public static func h2oMixedCacheFetch(
        rows: H2OMixedRows, pooled: Int, ringed: Int, keyDim: Int, policy: H2OPolicy,
        format: H2OMixedFormat, stream: StreamOrDevice = .default
    ) -> (MLXArray, MLXArray) {
        var keys = mlx_array_new()
        var values = mlx_array_new()
        policy.withConfig(format) { config, mixed in
            mlx_h2o_mixed_cache_fetch(
                &keys, &values, rows.pool.ctx, rows.ring.ctx, Int32(pooled), Int32(ringed),
                Int32(keyDim), config, mixed, stream.ctx)
        }
        return (MLXArray(keys), MLXArray(values))
    }
}
