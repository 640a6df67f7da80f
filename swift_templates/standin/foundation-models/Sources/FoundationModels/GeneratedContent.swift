import Foundation

/// Content that a model generates in a given structure: a JSON value.
public struct GeneratedContent: Sendable, Equatable, ConvertibleFromGeneratedContent {
    let value: JSON

    public init(json: String) throws {
        value = try JSONDecoder().decode(JSON.self, from: Data(json.utf8))
    }

    public init(_ content: GeneratedContent) throws { self = content }

    public init(properties: KeyValuePairs<String, any ConvertibleToGeneratedContent>) {
        let pairs = properties.map { ($0, $1.generatedContent.value) }
        value = .object(Dictionary(uniqueKeysWithValues: pairs))
    }

    init(_ value: JSON) { self.value = value }

    /// The value as JSON. Spaces and the order of keys may differ from the model's text.
    public var jsonString: String { value.text }

    public func value<Value: ConvertibleFromGeneratedContent>(
        _ type: Value.Type = Value.self, forProperty name: String
    ) throws -> Value {
        guard case .object(let fields) = value, let field = fields[name] else {
            throw ContentError.noProperty(name)
        }
        return try Value(GeneratedContent(field))
    }
}

enum ContentError: Error {
    case noProperty(String)
    case otherType(String)
}

public protocol ConvertibleFromGeneratedContent: SendableMetatype {
    init(_ content: GeneratedContent) throws
}

public protocol ConvertibleToGeneratedContent {
    var generatedContent: GeneratedContent { get }
}

/// A type that a model can generate. Apple's framework has a macro for the conformance; with the
/// stand-in, types conform by hand.
public protocol Generable: ConvertibleFromGeneratedContent, ConvertibleToGeneratedContent {
    static var generationSchema: GenerationSchema { get }
}

extension String: Generable {
    public init(_ content: GeneratedContent) throws {
        guard case .string(let text) = content.value else {
            throw ContentError.otherType(content.jsonString)
        }
        self = text
    }

    public var generatedContent: GeneratedContent { GeneratedContent(.string(self)) }

    public static var generationSchema: GenerationSchema {
        GenerationSchema(.object(["type": .string("string")]))
    }
}

extension Int: Generable {
    public init(_ content: GeneratedContent) throws {
        guard case .number(let number) = content.value, let whole = Int(exactly: number) else {
            throw ContentError.otherType(content.jsonString)
        }
        self = whole
    }

    public var generatedContent: GeneratedContent { GeneratedContent(.number(Double(self))) }

    public static var generationSchema: GenerationSchema {
        GenerationSchema(.object(["type": .string("integer")]))
    }
}

/// The structure of generated content, which is encoded as JSON Schema.
public struct GenerationSchema: Sendable, Codable, Equatable {
    let schema: JSON

    init(_ schema: JSON) { self.schema = schema }

    public init(from decoder: any Decoder) throws { schema = try JSON(from: decoder) }

    public func encode(to encoder: any Encoder) throws { try schema.encode(to: encoder) }

    /// The schema's title.
    public var name: String {
        guard case .object(let fields) = schema, case .string(let title) = fields["title"] else {
            return ""
        }
        return title
    }
}

/// A JSON value. Its text has sorted keys and no spaces.
indirect enum JSON: Sendable, Equatable, Codable {
    case null
    case bool(Bool)
    case number(Double)
    case string(String)
    case array([JSON])
    case object([String: JSON])

    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if container.decodeNil() {
            self = .null
        } else if let value = try? container.decode(Bool.self) {
            self = .bool(value)
        } else if let value = try? container.decode(Double.self) {
            self = .number(value)
        } else if let value = try? container.decode(String.self) {
            self = .string(value)
        } else if let value = try? container.decode([JSON].self) {
            self = .array(value)
        } else {
            self = .object(try container.decode([String: JSON].self))
        }
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .null: try container.encodeNil()
        case .bool(let value): try container.encode(value)
        case .number(let value):
            if let whole = Int(exactly: value) {
                try container.encode(whole)
            } else {
                try container.encode(value)
            }
        case .string(let value): try container.encode(value)
        case .array(let values): try container.encode(values)
        case .object(let fields): try container.encode(fields)
        }
    }

    var text: String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return (try? encoder.encode(self)).map { String(decoding: $0, as: UTF8.self) } ?? "null"
    }
}
