// Stands in for the adapters of mlx-swift-lm 3.31.4. Models here have no weights to adapt.

import MLXNN

public enum ModelAdapterError: Error {
    case unsupportedAdapterType(String)
    case incompatibleModelType
}

/// A model whose layers can be adapted.
public protocol LoRAModel {
    var loraLayers: [Module] { get }
}

/// The content of adapter_config.json.
public struct LoRAConfiguration: Sendable, Codable {
    public struct LoRAParameters: Sendable, Codable {
        public let rank: Int
        public let scale: Float
        public let keys: [String]?
    }

    public let numLayers: Int
    public let loraParameters: LoRAParameters

    enum CodingKeys: String, CodingKey {
        case numLayers = "num_layers"
        case loraParameters = "lora_parameters"
    }
}

public struct LoRAContainer {
    public init(configuration: LoRAConfiguration, parameters: consuming ModuleParameters) {}

    public func load(into model: LanguageModel) throws {
        guard model is LoRAModel else { throw ModelAdapterError.incompatibleModelType }
    }
}
