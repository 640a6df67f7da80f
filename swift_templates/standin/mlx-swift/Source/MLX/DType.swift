// Stands in for DType and HasDType of mlx-swift 0.31.6.

import Cmlx

/// The type of an array's elements.
public enum DType: Hashable, Sendable, CaseIterable {
    case bool
    case uint8
    case uint16
    case uint32
    case uint64
    case int8
    case int16
    case int32
    case int64
    case float16
    case float32
    case bfloat16
    case complex64
    case float64

    public var cmlxDtype: mlx_dtype {
        switch self {
        case .bool: MLX_BOOL
        case .uint8: MLX_UINT8
        case .uint16: MLX_UINT16
        case .uint32: MLX_UINT32
        case .uint64: MLX_UINT64
        case .int8: MLX_INT8
        case .int16: MLX_INT16
        case .int32: MLX_INT32
        case .int64: MLX_INT64
        case .float16: MLX_FLOAT16
        case .float32: MLX_FLOAT32
        case .bfloat16: MLX_BFLOAT16
        case .complex64: MLX_COMPLEX64
        case .float64: MLX_FLOAT64
        }
    }

    init(_ cmlxDtype: mlx_dtype) {
        guard let type = Self.allCases.first(where: { $0.cmlxDtype == cmlxDtype }) else {
            fatalError("MLX has the dtype \(cmlxDtype), which this enum lacks")
        }
        self = type
    }
}

/// A Swift type whose values an array may hold.
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
