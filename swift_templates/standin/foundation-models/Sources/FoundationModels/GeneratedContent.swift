import Foundation

/// Content that a model generates in a given structure: a JSON value.
public struct GeneratedContent: Sendable, Equatable, Generable, CustomStringConvertible {
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

    /// The value in JSON, whose spaces and order of keys need not be those of the model.
    public var jsonString: String { value.description }

    public var description: String { jsonString }

    public var generatedContent: GeneratedContent { self }

    public static var generationSchema: GenerationSchema { GenerationSchema(.object([:])) }

    public func value<Value: ConvertibleFromGeneratedContent>(
        _ type: Value.Type = Value.self
    ) throws -> Value {
        try Value(self)
    }

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

public protocol ConvertibleToGeneratedContent: PromptRepresentable {
    var generatedContent: GeneratedContent { get }
}

extension ConvertibleToGeneratedContent {
    public var promptRepresentation: Prompt {
        Prompt(segments: [
            .structure(Transcript.StructuredSegment(schemaName: "", content: generatedContent))
        ])
    }
}

/// Apple has a macro that conforms a type; here types conform by hand.
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

    public var promptRepresentation: Prompt {
        Prompt(segments: [.text(Transcript.TextSegment(content: self))])
    }

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

extension Bool: Generable {
    public init(_ content: GeneratedContent) throws {
        guard case .bool(let value) = content.value else {
            throw ContentError.otherType(content.jsonString)
        }
        self = value
    }

    public var generatedContent: GeneratedContent { GeneratedContent(.bool(self)) }

    public static var generationSchema: GenerationSchema {
        GenerationSchema(.object(["type": .string("boolean")]))
    }
}
