import MLX

/// A cache that computes the attention itself.
///
/// A cache that decides by attention which tokens it keeps has to see the
/// queries. `attentionWithCacheUpdate` hands the whole step to such a cache
/// instead of calling ``KVCache/update(keys:values:)`` and attending itself.
public protocol RoutedAttentionCache: KVCache {
    /// Stores the new keys and values and attends to all stored ones.
    ///
    /// B batch, Hq query heads, Hkv KV heads, L new tokens, N rows in use.
    ///
    /// - Parameters:
    ///   - queries: `[B, Hq, L, Dk]`, after RoPE
    ///   - keys: `[B, Hkv, L, Dk]`, after RoPE
    ///   - values: `[B, Hkv, L, Dv]`
    ///   - scale: factor of the logits, usually `1 / sqrt(Dk)`
    ///   - mask: what ``KVCache/makeMask(n:windowSize:returnArray:)`` gave for
    ///     these L tokens; an array must broadcast to `[B, Hq, L, N]`
    /// - Returns: the attention's output, `[B, Hq, L, Dv]` in the queries' dtype
    func attend(
        queries: MLXArray, keys: MLXArray, values: MLXArray, scale: Float,
        mask: MLXFast.ScaledDotProductAttentionMaskMode
    ) -> MLXArray
}
