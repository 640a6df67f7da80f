// A stand-in for Module of mlx-swift 0.31.6, the base class of models, without weights.

import MLX

open class Module {
    public init() {}

    open func parameters() -> ModuleParameters { ModuleParameters(arrays: [:]) }
}

/// Arrays, by the path of the module that contains them.
public struct ModuleParameters {
    fileprivate let arrays: [String: MLXArray]

    public static func unflattened(_ flat: [String: MLXArray]) -> ModuleParameters {
        ModuleParameters(arrays: flat)
    }

    public func flattened() -> [(String, MLXArray)] { arrays.map { ($0, $1) } }
}
