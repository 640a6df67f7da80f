import Cmlx

/// The H2O cache's functions. In their shapes: B batch, Hq query heads, Hkv KV heads, L
/// new tokens, N rows in use, C `maxSize`, Dk and Dv the head dims of keys and values.
extension MLXFast {

    /// The ledger of an empty cache.
    public static func h2oLedger(
        batch: Int, kvHeads: Int, keyDim: Int, policy: H2OPolicy, stream: StreamOrDevice = .default
    ) -> H2OLedger {
        var ledger = mlx_h2o_ledger()
        policy.withConfig(.dense) { config in
            mlx_h2o_ledger_init(
                &ledger, Int32(clamping: batch), Int32(clamping: kvHeads), Int32(clamping: keyDim), config, stream.ctx)
        }
        return H2OLedger(owning: ledger)
    }

    /// The ledger after the rows from `length` on were dropped again. Only right for
    /// a cache without a ring that has not evicted.
    public static func h2oLedgerTrim(
        _ ledger: H2OLedger, rows: H2ORows, length: Int, policy: H2OPolicy,
        format: H2ORowFormat, stream: StreamOrDevice = .default
    ) -> H2OLedger {
        var result = mlx_h2o_ledger()
        policy.withConfig(format) { config in
            mlx_h2o_ledger_trim(
                &result, rows.borrowed, ledger.borrowed, Int32(clamping: length), config, stream.ctx)
        }
        return H2OLedger(owning: result)
    }

    /// Puts new tokens into the rows: after the last row in use, or, a single token of a
    /// full cache, over `victim`. With a ring they go into that, and a single token moves
    /// the oldest recent one to the pool. Buffers grow in steps of 256 rows.
    ///
    /// - Parameters:
    ///   - rows: nil for an empty cache. The result shares these buffers, so nothing else
    ///     may read them any more, unless `copy`
    ///   - keys: `[B, Hkv, L, Dk]`, after RoPE
    ///   - values: `[B, Hkv, L, Dv]`
    ///   - victim: the ledger's
    ///   - offset: tokens seen before
    ///   - policy: see ``H2OPolicy``
    ///   - format: how rows are stored; they are quantized on the way in
    ///   - copy: write into copies of `rows`
    ///   - stream: stream or device to evaluate on
    /// - Returns: the new rows
    public static func h2oCacheWrite(
        rows: H2ORows?, keys: MLXArray, values: MLXArray, victim: MLXArray, offset: Int,
        policy: H2OPolicy, format: H2ORowFormat, copy: Bool = false,
        stream: StreamOrDevice = .default
    ) -> H2ORows {
        let arguments = mlx_h2o_write_arguments(
            rows: rows?.borrowed ?? mlx_h2o_rows(), keys: keys.ctx, values: values.ctx,
            victim: victim.ctx, offset: Int32(clamping: offset), copy: copy)
        var result = mlx_h2o_rows()
        policy.withConfig(format) { config in
            mlx_h2o_cache_write(&result, arguments, config, stream.ctx)
        }
        return H2ORows(owning: result)
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
    ///   - scale: factor of the logits, usually `1 / sqrt(Dk)`
    ///   - mask: an array must broadcast to `[B, Hq, tokens, N]`
    ///   - sinks: `[Hq]`, logits without a value
    ///   - policy: see ``H2OPolicy``
    ///   - format: how the rows are stored
    ///   - stream: stream or device to evaluate on
    /// - Returns: the output `[B, Hq, tokens, Dv]` in the queries' dtype, the rows
    ///   (the given ones unless a chunk was sorted into new ones) and the ledger
    public static func h2oCacheAttend(
        queries: MLXArray?, rows: H2ORows, ledger: H2OLedger, tokens: Int, offset: Int,
        scale: Float, mask: ScaledDotProductAttentionMaskMode, sinks: MLXArray? = nil,
        policy: H2OPolicy, format: H2ORowFormat, stream: StreamOrDevice = .default
    ) -> (output: MLXArray?, rows: H2ORows, ledger: H2OLedger) {
        var output = mlx_array_new()
        var newRows = mlx_h2o_rows()
        var newLedger = mlx_h2o_ledger()
        mask.mode.withCString { mode in
            let arguments = mlx_h2o_attend_arguments(
                queries: (queries ?? .mlxNone).ctx, rows: rows.borrowed, ledger: ledger.borrowed,
                tokens: Int32(clamping: tokens), offset: Int32(clamping: offset), scale: scale, mask_mode: mode,
                mask_arr: (mask.mask ?? .mlxNone).ctx, sinks: (sinks ?? .mlxNone).ctx)
            policy.withConfig(format) { config in
                mlx_h2o_cache_attend(
                    &output, &newRows, &newLedger, arguments, config, stream.ctx)
            }
        }
        return (
            queries == nil ? nil : MLXArray(output), H2ORows(owning: newRows),
            H2OLedger(owning: newLedger)
        )
    }

    /// The keys and values in use, those of the pool first, for attention that is computed
    /// elsewhere.
    ///
    /// - Parameters:
    ///   - rows: the cache's
    ///   - keyDim: Dk
    ///   - offset: tokens seen before those whose attention is outstanding
    ///   - tokens: those whose attention is outstanding
    ///   - policy: see ``H2OPolicy``
    ///   - format: how the rows are stored
    ///   - stream: stream or device to evaluate on
    /// - Returns: keys `[B, Hkv, N, Dk]` and values `[B, Hkv, N, Dv]`: views of dense rows,
    ///   quantized ones in the format's dtype
    public static func h2oCacheFetch(
        rows: H2ORows, keyDim: Int, offset: Int, tokens: Int, policy: H2OPolicy,
        format: H2ORowFormat, stream: StreamOrDevice = .default
    ) -> (MLXArray, MLXArray) {
        var keys = mlx_array_new()
        var values = mlx_array_new()
        policy.withConfig(format) { config in
            mlx_h2o_cache_fetch(
                &keys, &values, rows.borrowed, Int32(clamping: keyDim), Int32(clamping: offset), Int32(clamping: tokens),
                config, stream.ctx)
        }
        return (MLXArray(keys), MLXArray(values))
    }
}
