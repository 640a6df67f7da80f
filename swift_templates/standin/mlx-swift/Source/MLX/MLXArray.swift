// A stand-in for MLXArray of mlx-swift 0.31.6, with the element types and slices that H2OKit and its
// tests use.

import Cmlx
import Foundation

/// An array of MLX. It is evaluated when its values are read.
public final class MLXArray {
    /// The handle that the C functions take.
    public internal(set) var ctx: mlx_array

    /// Takes ownership of a handle.
    public init(_ ctx: consuming mlx_array) {
        installErrorHandler()
        self.ctx = ctx
    }

    /// Creates an array of these values, in row-major order.
    public convenience init<T: HasDType>(
        _ value: [T], _ shape: (some Collection<Int>)? = [Int]?.none
    ) {
        let shape = shape?.map { Int32($0) } ?? [Int32(value.count)]
        precondition(
            shape.reduce(1) { $0 * Int($1) } == value.count,
            "shape \(shape) does not hold \(value.count) values")
        self.init(
            value.withUnsafeBytes {
                mlx_array_new_data($0.baseAddress, shape, Int32(shape.count), T.dtype.cmlxDtype)
            })
    }

    /// The handle that means "no array" for the C functions.
    public static var mlxNone: MLXArray { MLXArray(mlx_array_new()) }

    deinit {
        mlx_array_free(ctx)
    }

    public var size: Int { mlx_array_size(ctx) }

    public var nbytes: Int { mlx_array_nbytes(ctx) }

    public var ndim: Int { mlx_array_ndim(ctx) }

    public var dtype: DType { DType(mlx_array_dtype(ctx)) }

    public var shape: [Int] {
        guard let dims = mlx_array_shape(ctx) else { return [] }
        return (0 ..< ndim).map { Int(dims[$0]) }
    }

    public func dim(_ dim: Int) -> Int { Int(mlx_array_dim(ctx, Int32(dim))) }

    public func asType(_ type: DType, stream: StreamOrDevice = .default) -> MLXArray {
        guard type != dtype else { return self }
        var result = mlx_array_new()
        mlx_astype(&result, ctx, type.cmlxDtype, stream.ctx)
        return MLXArray(result)
    }

    /// The values in row-major order, converted to `type`.
    public func asArray<T: HasDType>(_ type: T.Type) -> [T] {
        var result = mlx_array_new()
        let converted = asType(type.dtype)
        withExtendedLifetime(converted) {
            _ = mlx_contiguous(&result, converted.ctx, false, StreamOrDevice.default.ctx)
        }
        let contiguous = MLXArray(result)
        mlx_array_eval(contiguous.ctx)
        guard let bytes = mlx_array_data_uint8(contiguous.ctx) else { return [] }
        return UnsafeRawPointer(bytes).withMemoryRebound(to: type, capacity: contiguous.size) {
            Array(UnsafeBufferPointer(start: $0, count: contiguous.size))
        }
    }

    /// The value of an array with one element.
    public func item(_ type: Int.Type) -> Int {
        asArray(Int32.self).first.map(Int.init) ?? 0
    }
}

/// The type of an array's elements, in the order of mlx-c's enum.
public enum DType: UInt32, Sendable, CaseIterable {
    case bool
    case uint8, uint16, uint32, uint64
    case int8, int16, int32, int64
    case float16, float32, float64, bfloat16
    case complex64

    public var cmlxDtype: mlx_dtype { mlx_dtype(rawValue) }

    init(_ cmlxDtype: mlx_dtype) {
        guard let type = Self(rawValue: cmlxDtype.rawValue) else {
            fatalError("the enum DType has no case for MLX's dtype \(cmlxDtype)")
        }
        self = type
    }
}

/// A Swift type whose values an array may contain.
public protocol HasDType {
    static var dtype: DType { get }
}

extension Bool: HasDType {
    public static var dtype: DType { .bool }
}

extension Int32: HasDType {
    public static var dtype: DType { .int32 }
}

extension UInt32: HasDType {
    public static var dtype: DType { .uint32 }
}

extension Float: HasDType {
    public static var dtype: DType { .float32 }
}

public enum MLXArrayIndexOperation {
    /// All axes to which no other index applies.
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
