import Foundation
import H2OGrammar
import H2OKit

/// A JSON Schema that replies must follow.
///
///     let schema = try H2OSchema(
///         """
///         {"type": "object", "required": ["city", "population"], "properties": {
///           "city": {"type": "string"}, "population": {"type": "integer", "minimum": 0}}}
///         """)
///
/// Every reply is a valid instance, but not every valid instance can be a reply. An object has the
/// members that the schema names, in the order of `properties` or of the array `x-order`. Strings
/// have no `\u` escapes, and numbers have at most 15 digits before the point. A schema is refused
/// if it contains keywords that cannot be checked token by token, such as `not`, `uniqueItems` and
/// `multipleOf`. `oneOf` is treated as `anyOf`, and `format` is ignored, as in the standard.
public struct H2OSchema: Hashable, Sendable {
    /// The text of the schema.
    public let json: String
    /// A grammar that describes some of the schema's instances, in the notation of the grammar
    /// engine.
    package let grammar: String
    /// The largest number of bytes by which one more character can lengthen the shortest end of a
    /// reply.
    let longestEnd: Int

    /// The limit of tokens for a reply whose options have none: 512, plus two for each byte of the
    /// longest end. A token has at least one byte, so this is enough for the end of any reply.
    var roomForReply: Int { 512 + 2 * longestEnd }

    /// - Parameter json: the text of a JSON Schema (2020-12, or an older draft with the same
    ///   keywords); references are JSON pointers into itself
    /// - Throws: ``H2OSessionError/invalidSchema(_:)``
    public init(_ json: String) throws {
        let grammar = SchemaGrammar()
        self.json = json
        longestEnd = try SchemaReader.read(json, into: grammar)
        self.grammar = grammar.text
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
