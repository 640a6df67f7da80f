// Stands in for the indexing of mlx-swift 0.31.6: reading slices by ranges.

import Cmlx

public enum MLXArrayIndexOperation {
    /// All axes that the other indices leave.
    case ellipsis
    /// From `start` up to `end`, to the end of the axis if nil.
    case slice(start: Int32, end: Int32?)
}

/// A value that selects part of an array.
public protocol MLXArrayIndex {
    var mlxArrayIndexOperation: MLXArrayIndexOperation { get }
}

public struct MLXEllipsisIndex: MLXArrayIndex, Sendable {
    public var mlxArrayIndexOperation: MLXArrayIndexOperation { .ellipsis }
}

extension MLXArrayIndex where Self == MLXEllipsisIndex {
    public static var ellipsis: Self { Self() }
}

extension Range<Int>: MLXArrayIndex {
    public var mlxArrayIndexOperation: MLXArrayIndexOperation {
        .slice(start: Int32(lowerBound), end: Int32(upperBound))
    }
}

extension PartialRangeUpTo<Int>: MLXArrayIndex {
    public var mlxArrayIndexOperation: MLXArrayIndexOperation {
        .slice(start: 0, end: Int32(upperBound))
    }
}

extension PartialRangeFrom<Int>: MLXArrayIndex {
    public var mlxArrayIndexOperation: MLXArrayIndexOperation {
        .slice(start: Int32(lowerBound), end: nil)
    }
}

extension MLXArray {
    public subscript(indices: any MLXArrayIndex..., stream stream: StreamOrDevice = .default)
        -> MLXArray
    {
        var starts = [Int32](repeating: 0, count: ndim)
        var stops = shape.map { Int32($0) }
        let strides = [Int32](repeating: 1, count: ndim)
        var axis = 0
        for index in indices {
            switch index.mlxArrayIndexOperation {
            case .ellipsis:
                axis = ndim - (indices.count - 1 - axis)
            case .slice(let start, let end):
                starts[axis] = start
                stops[axis] = end ?? stops[axis]
                axis += 1
            }
        }
        var result = mlx_array_new()
        mlx_slice(
            &result, ctx, starts, ndim, stops, ndim, strides, ndim, stream.ctx)
        return MLXArray(result)
    }
}
