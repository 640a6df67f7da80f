import MLXLMCommon

/// A value of JSON, as in a tool's arguments: mlx-swift-lm's, under the name that code has which
/// imports this module alone.
public typealias JSONValue = MLXLMCommon.JSONValue
