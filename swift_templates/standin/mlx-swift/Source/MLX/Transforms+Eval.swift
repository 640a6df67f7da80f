// Stands in for the evaluation of mlx-swift 0.31.6.

import Cmlx

/// Computes the arrays' values now.
public func eval(_ arrays: some Collection<MLXArray>) {
    for array in arrays { mlx_array_eval(array.ctx) }
}

/// Begins to compute the arrays' values.
public func asyncEval(_ arrays: some Collection<MLXArray>) {
    eval(arrays)
}
