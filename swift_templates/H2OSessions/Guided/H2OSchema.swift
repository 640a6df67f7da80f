import Foundation
import H2OKit

/// A JSON Schema that replies must follow.
///
///     let schema = try H2OSchema(
///         """
///         {"type": "object", "required": ["city", "population"], "properties": {
///           "city": {"type": "string"}, "population": {"type": "integer", "minimum": 0}}}
///         """)
///
/// Every reply is a valid instance, or an error is thrown, but not every valid instance can be a
/// reply. An object has the members that the schema names, in the order of `properties` or of the
/// array `x-order` in Apple's schemas. `format` is ignored, as in the standard. A schema is refused
/// if it contains a keyword that the grammar engine ignores and that says which values are valid,
/// such as `not`, `uniqueItems` and `multipleOf`.
public struct H2OSchema: Hashable, Sendable {
    /// The text of the schema.
    public let json: String
    /// A schema that describes some of the schema's instances, for the grammar engine.
    package let forEngine: String
    /// The limit of tokens for a reply whose options have none: 512, plus two for each byte of the
    /// shortest instance.
    let roomForReply: Int

    /// - Parameter json: the text of a JSON Schema (2020-12, or an older draft with the same
    ///   keywords); references are JSON pointers into itself
    /// - Throws: ``H2OSessionError/invalidSchema(_:)``
    public init(_ json: String) throws {
        var reader = try SchemaReader(json)
        let (forEngine, shortest) = try reader.read()
        self.json = json
        self.forEngine = forEngine
        roomForReply = 512 + 2 * shortest
    }
}

extension H2OSchema: Codable {
    public init(from decoder: any Decoder) throws {
        try self.init(decoder.singleValueContainer().decode(String.self))
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(json)
    }
}
