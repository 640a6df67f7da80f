// Stands in for Module of mlx-swift 0.31.6: what models inherit from, without weights.

import MLX

open class Module {
    public init() {}
}

/// Arrays by the path of their module.
public struct ModuleParameters {
    public static func unflattened(_ flat: [String: MLXArray]) -> ModuleParameters {
        ModuleParameters()
    }
}
