import Foundation
import MLXLMCommon

/// A reply that has to be a call of a tool: JSON with the tool's name and arguments, whatever
/// the model's own format of calls is.
enum RequiredCall {
    private struct Call: Decodable {
        let name: String
        let arguments: [String: JSONValue]
    }

    /// The form of a reply that calls one of these tools.
    ///
    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` for arguments that replies cannot be held
    ///   to. A place in them begins with `/$defs/tool` and the number of the tool, from 0
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

    /// nil if the text is no whole call.
    static func call(in text: String) -> (name: String, arguments: [String: JSONValue])? {
        (try? JSONDecoder().decode(Call.self, from: Data(text.utf8))).map {
            ($0.name, $0.arguments)
        }
    }

    /// A schema whose references lead into it from a schema around it, which has it at `place`.
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
    /// These options with the form that the next answer has: that of a call where one must be
    /// made and this turn has none yet. A form has a limit of tokens, without which a text in it
    /// might never end.
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
