// Stands in for MLXArray of mlx-swift 0.31.6: what H2OKit and its tests use.

import Cmlx
import Foundation

/// An array of MLX, evaluated when its values are asked for.
public final class MLXArray {
    /// The handle that the C functions take.
    public internal(set) var ctx: mlx_array

    /// Takes over the given handle.
    public init(_ ctx: consuming mlx_array) {
        installErrorHandler()
        self.ctx = ctx
    }

    /// An array of the given values, in rows of the last dimension.
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

    /// What the C functions take for an absent array.
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

    /// The values in rows of the last dimension, converted to `type`.
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

    /// The value of an array that has one.
    public func item(_ type: Int.Type) -> Int {
        asArray(Int32.self).first.map(Int.init) ?? 0
    }
}
