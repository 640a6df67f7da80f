/// The form of a reply: a JSON Schema that it is an instance of.
///
///     let schema = try H2OSchema(
///         """
///         {"type": "object", "required": ["city", "population"], "properties": {
///           "city": {"type": "string"}, "population": {"type": "integer", "minimum": 0}}}
///         """)
///
/// Every reply is an instance, but not every instance can be a reply: an object has the members
/// that the schema names, in the order of `properties` or of the array `x-order`, strings have no
/// `\u` escapes, and numbers have at most 15 digits before the point. Keywords that text cannot
/// be held to token by token, such as `not`, `uniqueItems` and `multipleOf`, are refused;
/// `format` is a remark, as in the standard.
public struct H2OSchema: Hashable, Sendable {
    /// The schema as it was given.
    public let json: String
    /// A grammar of some of its instances, in the notation of the grammar engine.
    package let grammar: String
    /// The bytes that one more character of a reply can make necessary.
    let longestEnd: Int

    /// - Parameter json: the text of a JSON Schema (2020-12, or an older draft with the same
    ///   keywords); references lead to itself or into its own `$defs` or `definitions`
    /// - Throws: ``H2OSessionError/invalidSchema(_:)``
    public init(_ json: String) throws {
        guard let schema = OrderedJSON(parsing: json) else {
            throw H2OSessionError.invalidSchema(.notJSON)
        }
        self.json = json
        let forms = try SchemaReader(root: schema).forms()
        grammar = SchemaGrammar(forms).text
        longestEnd = SchemaLengths(forms).longest
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
