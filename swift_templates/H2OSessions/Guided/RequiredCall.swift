import Foundation
import H2OKit
import MLXLMCommon

/// A reply that must call a tool. It is JSON with the tool's name and arguments, not a call in the
/// model's own format.
struct RequiredCall: Decodable {
    let name: String
    let arguments: [String: JSONValue]

    /// - Parameter text: a complete call
    /// - Throws: `DecodingError` for any other text
    init(_ text: String) throws {
        self = try JSONDecoder().decode(Self.self, from: Data(text.utf8))
    }

    /// The schema of a reply that calls one of these tools.
    ///
    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` if the schema of a tool's arguments is not
    ///   supported. The error's `place` begins with `/$defs/tool` and the number of the tool, from 0
    static func schema(of tools: [H2OToolDefinition]) throws -> H2OSchema {
        let calls = tools.enumerated().map { index, tool in
            ##"{"properties":{"name":{"const":\##(json(tool.name))},"##
                + ##""arguments":{"$ref":"#/$defs/tool\##(index)"}},"required":["name","arguments"]}"##
        }
        let arguments = tools.enumerated().map { index, tool in
            var schema = tool.parameters
            // The references in a schema with an identifier refer to that schema.
            if case .object(var members) = schema {
                members["$id"] = .string("tool\(index)")
                schema = .object(members)
            }
            return "\"tool\(index)\":\(json(schema))"
        }
        return try H2OSchema(
            ##"{"anyOf":[\##(calls.joined(separator: ","))],"##
                + ##""$defs":{\##(arguments.joined(separator: ","))}}"##)
    }
}

extension H2OSession.Options {
    /// These options with the schema of the next answer: the schema of a call if a tool must be
    /// called and this turn has no call yet, otherwise the options' own schema. Options with a schema
    /// get a limit of tokens, because the text might otherwise never end.
    ///
    /// - Throws: ``H2OSessionError``
    func resolved(
        for transcript: [H2OMessage], _ tools: [H2OToolDefinition]
    ) throws -> H2OSession.Options {
        var options = self
        if requiresToolCall {
            guard !tools.isEmpty else { throw H2OSessionError.noToolToCall }
            let turn = transcript.reversed().prefix { $0.role != .user }
            options.requiresToolCall = turn.allSatisfy(\.toolCalls.isEmpty)
            if options.requiresToolCall { options.schema = try RequiredCall.schema(of: tools) }
        }
        options.maxTokens = options.maxTokens ?? options.schema?.roomForReply
        return options
    }
}
