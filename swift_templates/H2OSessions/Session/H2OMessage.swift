import Foundation
import H2OKit
import MLXLMCommon

/// One message of a conversation.
public struct H2OMessage: Hashable, Codable, Sendable {
    public enum Role: String, Hashable, Codable, Sendable {
        /// Instructions of the app. A conversation has at most one, at the beginning.
        case system
        case user
        /// The model.
        case assistant
        /// The output of a tool for a call.
        case tool
    }

    public var role: Role
    public var text: String
    /// The thoughts of an assistant before its answer.
    public var thoughts: String?
    /// The tools that an assistant calls.
    public var toolCalls: [H2OToolCall]
    /// The call to which a tool's output belongs.
    public var toolCallID: String?
    /// The name of the tool that gave the output.
    public var toolName: String?

    public init(
        role: Role, text: String, thoughts: String? = nil, toolCalls: [H2OToolCall] = [],
        toolCallID: String? = nil, toolName: String? = nil
    ) {
        self.role = role
        self.text = text
        self.thoughts = thoughts
        self.toolCalls = toolCalls
        self.toolCallID = toolCallID
        self.toolName = toolName
    }

    public static func system(_ text: String) -> H2OMessage {
        H2OMessage(role: .system, text: text)
    }

    public static func user(_ text: String) -> H2OMessage {
        H2OMessage(role: .user, text: text)
    }

    public static func assistant(
        _ text: String, thoughts: String? = nil, toolCalls: [H2OToolCall] = []
    ) -> H2OMessage {
        H2OMessage(role: .assistant, text: text, thoughts: thoughts, toolCalls: toolCalls)
    }

    public static func tool(_ text: String, callID: String, name: String) -> H2OMessage {
        H2OMessage(role: .tool, text: text, toolCallID: callID, toolName: name)
    }
}

/// A call of a tool by the model.
public struct H2OToolCall: Hashable, Codable, Sendable {
    /// The identifier of the call, unique in the conversation.
    public var id: String
    /// The name of the tool.
    public var name: String
    public var arguments: [String: JSONValue]

    public init(id: String, name: String, arguments: [String: JSONValue] = [:]) {
        self.id = id
        self.name = name
        self.arguments = arguments
    }

    /// The arguments as JSON.
    package var argumentsJSON: String { json(arguments) }
}

/// The description of a tool that the model reads.
package struct H2OToolDefinition: Hashable, Codable, Sendable {
    package let name: String
    package let description: String
    /// The arguments, as a JSON Schema of an object.
    package let parameters: JSONValue

    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` if the parameters are not the schema of
    ///   an object
    package init(name: String, description: String, parameters: JSONValue) throws {
        guard case .object(let schema) = parameters, schema["type"] == .string("object") else {
            let expected =
                "a schema with \"type\": \"object\" for the arguments of the tool \(name)"
            throw H2OSessionError.invalidSchema(.notASchema(place: "", expected: expected))
        }
        self.name = name
        self.description = description
        self.parameters = parameters
    }

    init(name: String, description: String, parameters: [ToolParameter]) {
        self.name = name
        self.description = description
        self.parameters = JSONValue.from([
            "type": "object",
            "required": parameters.filter(\.isRequired).map(\.name),
            "properties": Dictionary(
                parameters.map { ($0.name, $0.schema as Any) }, uniquingKeysWith: { $1 }),
        ])
    }
}

/// A tool that a session may call.
///
///     struct Place: Decodable, Sendable { let city: String }
///     let weather = H2OTool(
///         name: "weather", description: "Tells the weather of a city.",
///         parameters: [.required("city", type: .string, description: "The city's name")]
///     ) { (place: Place) in
///         try await forecast(for: place.city)
///     }
public struct H2OTool: Sendable {
    package let definition: H2OToolDefinition
    /// Runs the tool. If it throws an error, the model gets the error's text.
    package let call: @Sendable ([String: JSONValue]) async throws -> String

    /// Creates a tool whose arguments are decoded to a type of the app.
    ///
    /// - Parameters:
    ///   - parameters: mlx-swift-lm's descriptions of the arguments
    ///   - call: runs the tool. If it throws an error, or the arguments do not match the type, the
    ///     model gets the error's text
    public init<Arguments: Decodable & Sendable>(
        name: String, description: String, parameters: [ToolParameter],
        call: @escaping @Sendable (Arguments) async throws -> String
    ) {
        definition = H2OToolDefinition(
            name: name, description: description, parameters: parameters)
        self.call = { try await call(Arguments(arguments: $0)) }
    }

    /// Creates a tool with arguments of any form, such as a tool that another program describes.
    ///
    /// - Parameter parameters: a JSON Schema of an object
    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` if the parameters are not the schema of an
    ///   object
    public init(
        name: String, description: String, parameters: JSONValue,
        call: @escaping @Sendable ([String: JSONValue]) async throws -> String
    ) throws {
        definition = try H2OToolDefinition(
            name: name, description: description, parameters: parameters)
        self.call = call
    }
}

/// The error for arguments that cannot be decoded to the tool's type.
private struct ArgumentsProblem: LocalizedError {
    let errorDescription: String?

    init(_ error: DecodingError) {
        let context: DecodingError.Context? =
            switch error {
            case .typeMismatch(_, let context), .valueNotFound(_, let context),
                .keyNotFound(_, let context), .dataCorrupted(let context):
                context
            @unknown default: nil
            }
        let place = context?.codingPath.map(\.stringValue).joined(separator: ".") ?? ""
        errorDescription =
            "The arguments do not match the tool's description"
            + (place.isEmpty ? "" : ", at \(place)") + ". \(context?.debugDescription ?? "")"
    }
}

extension Decodable {
    fileprivate init(arguments: [String: JSONValue]) throws {
        do {
            self = try JSONDecoder().decode(Self.self, from: JSONEncoder().encode(arguments))
        } catch let error as DecodingError {
            throw ArgumentsProblem(error)
        }
    }
}

extension H2OToolDefinition {
    /// The form in which chat templates and mlx-swift-lm's parsers expect a tool.
    package var specification: [String: any Sendable] {
        let function: [String: any Sendable] = [
            "name": name, "description": description, "parameters": parameters.plain,
        ]
        return ["type": "function", "function": function]
    }
}

// Makes the name `JSONValue` available to code that imports only this module. A type alias would be
// ambiguous in code that also imports mlx-swift-lm.
@_exported import enum MLXLMCommon.JSONValue

extension JSONValue {
    /// The value in Foundation's types, for chat templates.
    package var plain: any Sendable {
        switch self {
        case .null: NSNull()
        case .bool(let value): value
        case .int(let value): value
        case .double(let value): value
        case .string(let value): value
        case .array(let values): values.map(\.plain)
        case .object(let fields): fields.mapValues(\.plain)
        }
    }
}
