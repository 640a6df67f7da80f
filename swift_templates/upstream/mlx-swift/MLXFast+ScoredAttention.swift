import Cmlx

/// Attention that also returns its logits. In the shapes: B batch, Hq query heads, Hkv
/// KV heads, L queries, N rows, Dk and Dv the head dims of keys and values.
extension MLXFast {

    /// Attention that also returns its logits.
    ///
    /// - Parameters:
    ///   - queries: `[B, Hq, L, Dk]`
    ///   - keys: `[B, Hkv, N, Dk]`
    ///   - values: `[B, Hkv, N, Dv]`
    ///   - scale: factor of the logits, usually `1 / sqrt(Dk)`
    ///   - mask: an array (bool: true means visible; other dtypes are added) must broadcast to
    ///     `[B, Hq, L, N]`
    ///   - sinks: `[Hq]`, logits without a value
    ///   - stream: stream or device to evaluate on
    /// - Returns: the output `[B, Hq, L, Dv]` in the queries' dtype, and the scores float32 `[B *
    ///   Hq * L, N]`: `scale * q.k` plus an additive mask, the lowest finite float where a row is
    ///   hidden
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

    /// The same attention over keys and values that `quantized(_:groupSize:bits:)` quantized in its
    /// affine mode, without unpacking them.
    ///
    /// - Parameters:
    ///   - queries: `[B, Hq, L, Dk]`
    ///   - quantizedKeys: words uint32 `[B, Hkv, N, Dk * keyBits / 32]`, scales and biases
    ///     `[B, Hkv, N, Dk / groupSize]`
    ///   - quantizedValues: words uint32 `[B, Hkv, N, Dv * valueBits / 32]`, scales and
    ///     biases `[B, Hkv, N, Dv / groupSize]`
    ///   - scale: factor of the logits, usually `1 / sqrt(Dk)`
    ///   - keyBits: 4 or 8
    ///   - valueBits: 4 or 8
    ///   - groupSize: 32, 64 or 128 elements share a scale and a bias
    ///   - mask: as for
    ///     ``scaledDotProductAttentionWithScores(queries:keys:values:scale:mask:sinks:stream:)``
    ///   - sinks: `[Hq]`, logits without a value
    ///   - stream: stream or device to evaluate on
    /// - Returns: the output `[B, Hq, L, Dv]` in the queries' dtype, and the scores float32 `[B *
    ///   Hq * L, N]`
    public static func scaledDotProductAttentionQuantizedWithScores(
        queries: MLXArray,
        quantizedKeys: (words: MLXArray, scales: MLXArray, biases: MLXArray),
        quantizedValues: (words: MLXArray, scales: MLXArray, biases: MLXArray),
        scale: Float, keyBits: Int, valueBits: Int, groupSize: Int = 64,
        mask: ScaledDotProductAttentionMaskMode, sinks: MLXArray? = nil,
        stream: StreamOrDevice = .default
    ) -> (MLXArray, MLXArray) {
        var output = mlx_array_new()
        var scores = mlx_array_new()
        mlx_fast_scaled_dot_product_attention_quantized_with_scores(
            &output, &scores, queries.ctx,
            quantizedKeys.words.ctx, quantizedKeys.scales.ctx, quantizedKeys.biases.ctx,
            quantizedValues.words.ctx, quantizedValues.scales.ctx, quantizedValues.biases.ctx,
            scale, Int32(keyBits), Int32(valueBits), Int32(groupSize),
            mask.mode, (mask.mask ?? .mlxNone).ctx, (sinks ?? .mlxNone).ctx, stream.ctx)
        return (MLXArray(output), MLXArray(scores))
    }
}
