import MLX
import MLXLMCommon

/// A cache that knows how much each of its rows matters.
///
/// B batch, Hkv KV heads, C the configuration's `maxSize`. A *position* is a token's
/// index in the sequence, a *row* its place in the buffer; after eviction they differ.
public protocol H2OScoreTracking: KVCache {
    var configuration: H2OConfiguration { get }

    /// Rows in use.
    var length: Int { get }

    /// float32 `[B, Hkv, C]`, -1 where a row was not yet observed; nil while empty.
    var scores: MLXArray? { get }

    /// int32 `[B, Hkv, C]`, -1 where a row is empty; nil while the cache is empty.
    var positions: MLXArray? { get }
}
