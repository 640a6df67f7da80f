// Stands in for MLXFast of mlx-swift 0.31.6: the attention.

import Cmlx

public enum MLXFast {

    public enum ScaledDotProductAttentionMaskMode {
        case none
        case array(MLXArray)
        case causal

        public var mask: MLXArray? {
            if case .array(let array) = self { array } else { nil }
        }

        public var mode: String {
            if case .causal = self { "causal" } else { "" }
        }
    }

    /// `softmax(scale * queries . keys) . values`.
    ///
    /// - Parameters:
    ///   - queries: `[B, Hq, L, D]`
    ///   - keys: `[B, Hkv, N, D]`
    ///   - values: `[B, Hkv, N, D]`
    ///   - scale: factor of the logits
    ///   - mask: which rows each query sees
    ///   - sinks: `[Hq]`, logits without a value
    ///   - stream: where it is evaluated
    public static func scaledDotProductAttention(
        queries: MLXArray, keys: MLXArray, values: MLXArray, scale: Float,
        mask: ScaledDotProductAttentionMaskMode,
        sinks: MLXArray? = nil,
        stream: StreamOrDevice = .default
    ) -> MLXArray {
        var result = mlx_array_new()
        mlx_fast_scaled_dot_product_attention(
            &result, queries.ctx, keys.ctx, values.ctx, scale,
            mask.mode, (mask.mask ?? .mlxNone).ctx, (sinks ?? .mlxNone).ctx, stream.ctx)
        return MLXArray(result)
    }
}
