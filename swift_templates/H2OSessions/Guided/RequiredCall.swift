import Foundation
import MLXLMCommon

/// A reply that must call a tool. It is JSON with the tool's name and arguments, not a call in the
/// model's own format.
enum RequiredCall {
    private struct Call: Decodable {
        let name: String
        let arguments: [String: JSONValue]
    }

    /// The schema of a reply that calls one of these tools.
    ///
    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` if the schema of a tool's arguments is not
    ///   supported. The error's `place` begins with `/$defs/tool` and the number of the tool, from 0
    static func schema(of tools: [H2OToolDefinition]) throws -> H2OSchema {
        var definitions = [String: JSONValue]()
        let calls = tools.enumerated().map { index, tool -> JSONValue in
            let place = "#/$defs/tool\(index)"
            definitions["tool\(index)"] = moved(tool.parameters, to: place)
            let members = ["name": ["const": tool.name], "arguments": ["$ref": place]]
            let names = ["name", "arguments"]
            return .from(
                [
                    "type": "object", "required": names, "x-order": names, "properties": members,
                    "additionalProperties": false,
                ] as [String: Any])
        }
        let whole: JSONValue = .object(["anyOf": .array(calls), "$defs": .object(definitions)])
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        return try H2OSchema(String(decoding: encoder.encode(whole), as: UTF8.self))
    }

    /// The call in a complete text; nil if the text is not a complete call.
    static func call(in text: String) -> (name: String, arguments: [String: JSONValue])? {
        (try? JSONDecoder().decode(Call.self, from: Data(text.utf8))).map {
            ($0.name, $0.arguments)
        }
    }

    /// Adapts the references of a schema that becomes part of another schema, at `place`.
    private static func moved(_ schema: JSONValue, to place: String) -> JSONValue {
        switch schema {
        case .object(let fields):
            .object(
                Dictionary(
                    uniqueKeysWithValues: fields.map { name, value in
                        guard name == "$ref", case .string(let reference) = value,
                            reference.first == "#"
                        else { return (name, moved(value, to: place)) }
                        return (name, .string(place + reference.dropFirst()))
                    }))
        case .array(let elements): .array(elements.map { moved($0, to: place) })
        default: schema
        }
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
