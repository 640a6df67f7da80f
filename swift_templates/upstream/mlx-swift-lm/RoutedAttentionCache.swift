import MLX

/// A cache that computes attention itself.
///
/// A cache that chooses tokens by their attention must receive the queries.
/// `attentionWithCacheUpdate` therefore passes the whole step to this cache, and does not call
/// ``KVCache/update(keys:values:)`` or compute attention.
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
    ///   - mask: the result of ``KVCache/makeMask(n:windowSize:returnArray:)`` for these L tokens;
    ///     an array must broadcast to `[B, Hq, L, N]`
    /// - Returns: the attention's output, `[B, Hq, L, Dv]` in the queries' dtype
    func attend(
        queries: MLXArray, keys: MLXArray, values: MLXArray, scale: Float,
        mask: MLXFast.ScaledDotProductAttentionMaskMode
    ) -> MLXArray
}
