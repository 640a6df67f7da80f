import Cmlx

/// The H2O cache's functions. In their shapes: B batch, Hq query heads, Hkv KV heads, L
/// new tokens, N rows in use, C `maxSize`, Dk and Dv the head dims of keys and values.
extension MLXFast {

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
        format: H2ORowFormat = .dense, stream: StreamOrDevice = .default
    ) -> H2OLedger {
        var result = mlx_h2o_ledger()
        policy.withConfig(format) { config in
            mlx_h2o_ledger_trim(
                &result, rows.ctx, ledger.borrowed, Int32(length), config, stream.ctx)
        }
        return H2OLedger(owning: result)
    }

    /// Puts new tokens into the rows: after the last row in use, or, a single token
    /// of a full cache, over `victim`. The buffer grows in steps of 256 rows.
    ///
    /// - Parameters:
    ///   - rows: `[B, Hkv, capacity, Dk + Dv]`, of quantized ones uint32
    ///     `[B, Hkv, capacity, words]`, nil for an empty cache. The result shares this
    ///     buffer, so nothing else may read it any more, unless `copy`
    ///   - keys: `[B, Hkv, L, Dk]`, after RoPE
    ///   - values: `[B, Hkv, L, Dv]`
    ///   - victim: the ledger's
    ///   - length: rows in use before
    ///   - policy: see ``H2OPolicy``
    ///   - format: how rows are stored; quantized on the way in
    ///   - copy: write into a copy of `rows`
    ///   - stream: stream or device to evaluate on
    /// - Returns: the new rows
    public static func h2oCacheWrite(
        rows: MLXArray?, keys: MLXArray, values: MLXArray, victim: MLXArray, length: Int,
        policy: H2OPolicy, format: H2ORowFormat = .dense, copy: Bool = false,
        stream: StreamOrDevice = .default
    ) -> MLXArray {
        var result = mlx_array_new()
        policy.withConfig(format) { config in
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
    ///   - format: how the rows are stored
    ///   - stream: stream or device to evaluate on
    /// - Returns: the output `[B, Hq, tokens, Dv]` in the queries' dtype, the rows
    ///   (the given ones unless a chunk was evicted from) and the ledger
    public static func h2oCacheAttend(
        queries: MLXArray?, rows: MLXArray, ledger: H2OLedger, tokens: Int, offset: Int,
        length: Int, scale: Float, mask: ScaledDotProductAttentionMaskMode,
        sinks: MLXArray? = nil, policy: H2OPolicy, format: H2ORowFormat = .dense,
        stream: StreamOrDevice = .default
    ) -> (output: MLXArray?, rows: MLXArray, ledger: H2OLedger) {
        var output = mlx_array_new()
        var newRows = mlx_array_new()
        var newLedger = mlx_h2o_ledger()
        policy.withConfig(format) { config in
            mlx_h2o_cache_attend(
                &output, &newRows, &newLedger, (queries ?? .mlxNone).ctx, rows.ctx,
                ledger.borrowed, Int32(tokens), Int32(offset), Int32(length), scale,
                mask.mode, (mask.mask ?? .mlxNone).ctx, (sinks ?? .mlxNone).ctx, config, stream.ctx)
        }
        return (
            queries == nil ? nil : MLXArray(output), MLXArray(newRows), H2OLedger(owning: newLedger)
        )
    }

    /// The keys and values of the first rows, for attention that is computed elsewhere.
    ///
    /// - Parameters:
    ///   - rows: the cache's
    ///   - length: rows in use
    ///   - keyDim: Dk
    ///   - policy: see ``H2OPolicy``
    ///   - format: how the rows are stored
    ///   - stream: stream or device to evaluate on
    /// - Returns: keys `[B, Hkv, length, Dk]` and values `[B, Hkv, length, Dv]`: views of
    ///   dense rows, quantized ones in the format's dtype
    public static func h2oCacheFetch(
        rows: MLXArray, length: Int, keyDim: Int, policy: H2OPolicy,
        format: H2ORowFormat = .dense, stream: StreamOrDevice = .default
    ) -> (MLXArray, MLXArray) {
        var keys = mlx_array_new()
        var values = mlx_array_new()
        policy.withConfig(format) { config in
            mlx_h2o_cache_fetch(
                &keys, &values, rows.ctx, Int32(length), Int32(keyDim), config, stream.ctx)
        }
        return (MLXArray(keys), MLXArray(values))
    }
}
