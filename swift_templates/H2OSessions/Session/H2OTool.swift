import Foundation
import H2OKit
import MLXLMCommon

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
    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` if the parameters are not the schema of
    ///   an object
    package init(name: String, description: String, parameters: JSONValue) throws {
        guard case .object(let schema) = parameters, schema["type"] == .string("object") else {
            let expected =
                "a schema with \"type\": \"object\" for the arguments of the tool \(name)"
            throw H2OSessionError.invalidSchema(.notASchema(place: "", expected: expected))
        }
        self.init(name: name, description: description, schema: parameters)
    }
}

extension H2OToolCall {
    /// The arguments as JSON.
    package var argumentsJSON: String { json(arguments) }
}

// Makes the name `JSONValue` available to code that imports only this module. A type alias would be
// ambiguous in code that also imports mlx-swift-lm.
@_exported import enum MLXLMCommon.JSONValue
