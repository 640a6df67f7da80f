import MLXLMCommon

/// A call of a tool, as the model wrote it.
public struct H2OToolCall: Hashable, Codable, Sendable {
    /// Tells this call from others of the conversation.
    public var id: String
    /// The name of the tool.
    public var name: String
    public var arguments: [String: JSONValue]

    public init(id: String, name: String, arguments: [String: JSONValue] = [:]) {
        self.id = id
        self.name = name
        self.arguments = arguments
    }
}

/// What a model is told of a tool.
public struct H2OToolDefinition: Hashable, Codable, Sendable {
    public let name: String
    public let description: String
    /// The arguments, as a JSON Schema of an object.
    public let parameters: JSONValue

    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` if the parameters are not the schema of
    ///   an object
    public init(name: String, description: String, parameters: JSONValue) throws {
        guard case .object(let schema) = parameters, schema["type"] == .string("object") else {
            let expected = "an object of type \"object\", the parameters of the tool \(name)"
            throw H2OSessionError.invalidSchema(.notASchema(place: "", expected: expected))
        }
        self.name = name
        self.description = description
        self.parameters = parameters
    }
}

/// A tool that a session may call.
public struct H2OTool: Sendable {
    public let definition: H2OToolDefinition
    /// Answers a call. The text of an error that it throws is given to the model.
    public let call: @Sendable ([String: JSONValue]) async throws -> String

    public init(
        _ definition: H2OToolDefinition,
        call: @escaping @Sendable ([String: JSONValue]) async throws -> String
    ) {
        self.definition = definition
        self.call = call
    }

    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` if the parameters are not the schema of
    ///   an object
    public init(
        name: String, description: String, parameters: JSONValue,
        call: @escaping @Sendable ([String: JSONValue]) async throws -> String
    ) throws {
        self.init(
            try H2OToolDefinition(name: name, description: description, parameters: parameters),
            call: call)
    }
}

extension H2OToolDefinition {
    /// The form in which chat templates and upstream's parsers expect a tool.
    package var specification: [String: any Sendable] {
        let function: [String: any Sendable] = [
            "name": name, "description": description, "parameters": parameters.plain,
        ]
        return ["type": "function", "function": function]
    }
}
