// A stand-in for the operations and the attention of mlx-swift 0.31.6 that H2OKit calls.

import Cmlx

extension MLXArray {
    /// The array with an additional axis of size 1.
    public func expandedDimensions(axis: Int) -> MLXArray {
        var sizes = shape
        sizes.insert(1, at: axis)
        return reshaped(sizes)
    }

    /// The same elements in another shape. A size of -1 is computed from the other sizes.
    public func reshaped(
        _ newShape: some Collection<Int>, stream: StreamOrDevice = .default
    ) -> MLXArray {
        let shape = newShape.map { Int32($0) }
        var result = mlx_array_new()
        mlx_reshape(&result, ctx, shape, shape.count, stream.ctx)
        return MLXArray(result)
    }

    /// The array without an axis of size 1.
    public func squeezed(axis: Int) -> MLXArray {
        var sizes = shape
        sizes.remove(at: axis)
        return reshaped(sizes)
    }

    public static func + (lhs: MLXArray, rhs: MLXArray) -> MLXArray {
        var result = mlx_array_new()
        mlx_add(&result, lhs.ctx, rhs.ctx, StreamOrDevice.default.ctx)
        return MLXArray(result)
    }
}

/// Creates a list of the arrays, which the caller must free.
func new_mlx_vector_array(_ arrays: some Collection<MLXArray>) -> mlx_vector_array {
    withExtendedLifetime(arrays) {
        mlx_vector_array_new_data(arrays.map { $0.ctx }, arrays.count)
    }
}

func mlx_vector_array_values(_ list: mlx_vector_array) -> [MLXArray] {
    (0 ..< mlx_vector_array_size(list)).map { index in
        var array = mlx_array_new()
        mlx_vector_array_get(&array, list, index)
        return MLXArray(array)
    }
}

/// Evaluates the arrays.
public func eval(_ arrays: some Collection<MLXArray>) {
    for array in arrays { mlx_array_eval(array.ctx) }
}

/// Begins to evaluate the arrays, without waiting.
public func asyncEval(_ arrays: some Collection<MLXArray>) {
    eval(arrays)
}

/// A value that consists of arrays, which can be evaluated together.
public protocol Evaluatable {
    func innerState() -> [MLXArray]
}

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
    ///   - stream: the stream or device on which it is evaluated
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
