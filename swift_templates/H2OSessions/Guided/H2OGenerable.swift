import Foundation
import H2OKit
import MLXLMCommon

/// A type whose values the model can write.
///
///     struct City: H2OGenerable {
///         let name: String
///         let population: Int
///     }
///     let city = try await session.respond(to: "The largest city?", generating: City.self).content
///
/// The schema follows from the type: its properties in their order, of the types `Bool`, `String`,
/// numbers, `URL`, enumerations that are `CaseIterable` with raw values, arrays, and types of such
/// properties. Optional properties may be left out. For limits, or for other types, implement
/// ``generationSchema`` of the outermost type.
public protocol H2OGenerable: Decodable, Sendable {
    /// The schema of all values. `JSONDecoder` decodes the values from JSON.
    static var generationSchema: H2OSchema { get throws }
}

extension H2OGenerable {
    /// The schema that follows from the type.
    public static var generationSchema: H2OSchema {
        get throws {
            let place = DerivedSchema()
            _ = try place.value(of: Self.self)
            return try H2OSchema(json(place.schema))
        }
    }
}

extension Array: H2OGenerable where Element: H2OGenerable {
    public static var generationSchema: H2OSchema {
        get throws {
            try H2OSchema(#"{"type": "array", "items": \#(Element.generationSchema.json)}"#)
        }
    }
}

extension H2OSession {
    /// Generates a value of a type.
    ///
    /// - Parameters:
    ///   - prompt: the message
    ///   - options: options that replace the session's own; their schema is that of the type
    /// - Throws: the same errors as ``respond(to:options:)-(String,_)``, and
    ///   ``H2OSessionError/replyDoesNotFit(type:reason:)`` if the type refuses the reply, which then
    ///   stays in the conversation
    public func respond<Content: H2OGenerable>(
        to prompt: String, generating type: Content.Type = Content.self, options: Options? = nil
    ) async throws -> Response<Content> {
        var options = options ?? self.options
        options.schema = try type.generationSchema
        return try await respond(to: prompt, options: options).map { text in
            do {
                return try JSONDecoder().decode(type, from: Data(text.utf8))
            } catch {
                throw H2OSessionError.replyDoesNotFit(type: "\(type)", reason: "\(error)")
            }
        }
    }
}

/// The schema of one value of a type, which notes what the type decodes.
private final class DerivedSchema {
    private enum Kind {
        case value([String: JSONValue])
        case array(DerivedSchema)
        case object
    }

    private var kind: Kind?
    private var properties = [(name: String, schema: DerivedSchema)]()
    /// The names of properties that may be left out.
    var optional = Set<String>()
    /// The types in which this value is.
    private let outer: [ObjectIdentifier]

    init(in outer: [ObjectIdentifier] = []) { self.outer = outer }

    private var names: [String] { properties.map(\.name) }

    var schema: JSONValue {
        switch kind {
        case .value(let schema): .object(schema)
        case .array(let items): .object(["type": .string("array"), "items": items.schema])
        case .object:
            .object([
                "type": .string("object"),
                "required": .array(names.filter { !optional.contains($0) }.map(JSONValue.string)),
                "x-order": .array(names.map(JSONValue.string)),
                "properties": .object(
                    Dictionary(
                        properties.map { ($0.name, $0.schema.schema) },
                        uniquingKeysWith: { first, _ in first })),
            ])
        case nil: .object([:])
        }
    }

    /// Notes the schema of a type, and returns a value of it.
    ///
    /// - Throws: ``H2OSessionError/invalidSchema(_:)``
    func value<Value: Decodable>(of type: Value.Type) throws -> Value {
        if let (schema, value) = Self.leaf(type), let value = value as? Value {
            kind = .value(schema)
            return value
        }
        let id = ObjectIdentifier(type)
        // JSONDecoder reads numbers for a date, and base64 for data, which no model writes.
        guard type != Date.self, type != Data.self else { throw Self.problem(type) }
        guard !outer.contains(id) else { throw Self.problem(type) }
        let place = DerivedSchema(in: outer + [id])
        defer { (kind, properties, optional) = (place.kind, place.properties, place.optional) }
        do {
            let value = try Value(from: SchemaDecoder(place: place))
            if case .object = place.kind, place.properties.isEmpty { throw Self.problem(type) }
            return value
        } catch is DecodingError {
            throw Self.problem(type)
        }
    }

    /// Notes a property.
    func property(_ key: any CodingKey) -> DerivedSchema {
        let property = DerivedSchema(in: outer)
        properties.append((key.stringValue, property))
        return property
    }

    /// Notes that the value is an object.
    func beginObject() { kind = .object }

    /// Notes that the value is an array, and returns the schema of its elements.
    func beginArray() -> DerivedSchema {
        let items = DerivedSchema(in: outer)
        kind = .array(items)
        return items
    }

    private static func problem(_ type: Any.Type) -> H2OSessionError {
        .invalidSchema(.notDerivable(type: "\(type)"))
    }

    /// The schema and a value of a type without parts.
    private static func leaf(_ type: Any.Type) -> (schema: [String: JSONValue], value: Any)? {
        switch type {
        case is Bool.Type: (["type": .string("boolean")], false)
        case is String.Type: (["type": .string("string")], "")
        case is Double.Type: (["type": .string("number")], Double.zero)
        case is Float.Type: (["type": .string("number")], Float.zero)
        case is URL.Type: (["type": .string("string")], URL(filePath: "/"))
        case let type as any FixedWidthInteger.Type: integer(type)
        case let type as any CaseIterable.Type: cases(type)
        default: nil
        }
    }

    private static func integer<Integer: FixedWidthInteger>(
        _ type: Integer.Type
    ) -> (schema: [String: JSONValue], value: Any) {
        let minimum: [String: JSONValue] = Integer.isSigned ? [:] : ["minimum": .int(0)]
        return (minimum.merging(["type": .string("integer")]) { $1 }, Integer.zero)
    }

    private static func cases<Type: CaseIterable>(
        _ type: Type.Type
    ) -> (schema: [String: JSONValue], value: Any)? {
        let values = type.allCases.compactMap { value -> JSONValue? in
            switch (value as? any RawRepresentable)?.rawValue {
            case let text as String: .string(text)
            case let number as Int: .int(number)
            default: nil
            }
        }
        guard let first = type.allCases.first, values.count == type.allCases.count else {
            return nil
        }
        return (["enum": .array(values)], first)
    }
}

/// A decoder that reads nothing, and notes in a schema what a type decodes.
private struct SchemaDecoder: Decoder {
    let place: DerivedSchema
    let codingPath = [any CodingKey]()
    let userInfo = [CodingUserInfoKey: Any]()

    func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedDecodingContainer<Key> {
        place.beginObject()
        return KeyedDecodingContainer(Fields(place: place))
    }

    func unkeyedContainer() -> any UnkeyedDecodingContainer {
        Elements(items: place.beginArray())
    }

    func singleValueContainer() -> any SingleValueDecodingContainer { Single(place: place) }

    private struct Fields<Key: CodingKey>: KeyedDecodingContainerProtocol {
        let place: DerivedSchema
        let codingPath = [any CodingKey]()
        let allKeys = [Key]()

        /// A type asks this only for properties that may be left out.
        func contains(_ key: Key) -> Bool {
            place.optional.insert(key.stringValue)
            return true
        }

        func decodeNil(forKey key: Key) -> Bool { false }

        func decode<Value: Decodable>(_ type: Value.Type, forKey key: Key) throws -> Value {
            try place.property(key).value(of: type)
        }

        func nestedContainer<Nested: CodingKey>(
            keyedBy type: Nested.Type, forKey key: Key
        ) -> KeyedDecodingContainer<Nested> {
            SchemaDecoder(place: place.property(key)).container(keyedBy: type)
        }

        func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedDecodingContainer {
            SchemaDecoder(place: place.property(key)).unkeyedContainer()
        }

        func superDecoder() -> any Decoder { SchemaDecoder(place: place) }

        func superDecoder(forKey key: Key) -> any Decoder {
            SchemaDecoder(place: place.property(key))
        }
    }

    /// One element, so that its type is noted.
    private struct Elements: UnkeyedDecodingContainer {
        let items: DerivedSchema
        let codingPath = [any CodingKey]()
        let count: Int? = 1
        private(set) var currentIndex = 0

        init(items: DerivedSchema) { self.items = items }

        var isAtEnd: Bool { currentIndex > 0 }

        mutating func decodeNil() -> Bool { false }

        mutating func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
            currentIndex += 1
            return try items.value(of: type)
        }

        mutating func nestedContainer<Nested: CodingKey>(
            keyedBy type: Nested.Type
        ) -> KeyedDecodingContainer<Nested> {
            currentIndex += 1
            return SchemaDecoder(place: items).container(keyedBy: type)
        }

        mutating func nestedUnkeyedContainer() -> any UnkeyedDecodingContainer {
            currentIndex += 1
            return SchemaDecoder(place: items).unkeyedContainer()
        }

        mutating func superDecoder() -> any Decoder { SchemaDecoder(place: items) }
    }

    private struct Single: SingleValueDecodingContainer {
        let place: DerivedSchema
        let codingPath = [any CodingKey]()

        func decodeNil() -> Bool { false }

        func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
            try place.value(of: type)
        }
    }
}
