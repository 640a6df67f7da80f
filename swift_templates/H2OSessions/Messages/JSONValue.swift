// A value of JSON, as in a tool's arguments, has its name where this module alone is imported. A
// type alias of that name would be a second one where mlx-swift-lm is imported too.
@_exported import enum MLXLMCommon.JSONValue
