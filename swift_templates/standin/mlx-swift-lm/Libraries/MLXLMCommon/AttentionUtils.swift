// Stands in for attentionWithCacheUpdate of mlx-swift-lm 3.31.4, with the routing
// that is added to upstream's.

import MLX

/// Stores new keys and values in the cache, if there is one, and attends to all.
///
/// - Parameters:
///   - queries: `[B, Hq, L, D]`
///   - keys: `[B, Hkv, L, D]`
///   - values: `[B, Hkv, L, D]`
///   - cache: where the new tokens go
///   - scale: factor of the logits
///   - mask: which rows each query sees
/// - Returns: the output, `[B, Hq, L, D]`
public func attentionWithCacheUpdate(
    queries: MLXArray,
    keys: MLXArray,
    values: MLXArray,
    cache: KVCache?,
    scale: Float,
    mask: MLXFast.ScaledDotProductAttentionMaskMode = .none
) -> MLXArray {
    if let routed = cache as? RoutedAttentionCache {
        return routed.attend(queries: queries, keys: keys, values: values, scale: scale, mask: mask)
    }
    let (keys, values) = cache?.update(keys: keys, values: values) ?? (keys, values)
    return MLXFast.scaledDotProductAttention(
        queries: queries, keys: keys, values: values, scale: scale, mask: mask)
}
