// Stands in for Module of mlx-swift 0.31.6: what models inherit from, without weights.

import MLX

open class Module {
    public init() {}

    open func parameters() -> ModuleParameters { ModuleParameters(arrays: [:]) }
}

/// Arrays by the path of their module.
public struct ModuleParameters {
    fileprivate let arrays: [String: MLXArray]

    public static func unflattened(_ flat: [String: MLXArray]) -> ModuleParameters {
        ModuleParameters(arrays: flat)
    }

    public func flattened() -> [(String, MLXArray)] { arrays.map { ($0, $1) } }
}
