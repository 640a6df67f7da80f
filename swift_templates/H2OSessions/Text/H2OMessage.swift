import Foundation
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
    /// Whether an assistant was canceled before its turn ended, or reached its limit of tokens.
    public var isCutOff: Bool

    public init(
        role: Role, text: String, thoughts: String? = nil, toolCalls: [H2OToolCall] = [],
        toolCallID: String? = nil, toolName: String? = nil, isCutOff: Bool = false
    ) {
        self.role = role
        self.text = text
        self.thoughts = thoughts
        self.toolCalls = toolCalls
        self.toolCallID = toolCallID
        self.toolName = toolName
        self.isCutOff = isCutOff
    }

    public static func system(_ text: String) -> H2OMessage {
        H2OMessage(role: .system, text: text)
    }

    public static func user(_ text: String) -> H2OMessage {
        H2OMessage(role: .user, text: text)
    }

    public static func assistant(
        _ text: String, thoughts: String? = nil, toolCalls: [H2OToolCall] = [],
        isCutOff: Bool = false
    ) -> H2OMessage {
        H2OMessage(
            role: .assistant, text: text, thoughts: thoughts, toolCalls: toolCalls,
            isCutOff: isCutOff)
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
}

/// The description of a tool that the model reads.
package struct H2OToolDefinition: Hashable, Codable, Sendable {
    package let name: String
    package let description: String
    /// The arguments, as a JSON Schema of an object.
    package let parameters: JSONValue

    /// - Parameter schema: the schema of an object
    init(name: String, description: String, schema: JSONValue) {
        self.name = name
        self.description = description
        parameters = schema
    }

    init(name: String, description: String, parameters: [ToolParameter]) {
        let schema = JSONValue.from([
            "type": "object",
            "required": parameters.filter(\.isRequired).map(\.name),
            "properties": Dictionary(
                parameters.map { ($0.name, $0.schema as Any) }, uniquingKeysWith: { $1 }),
        ])
        self.init(name: name, description: description, schema: schema)
    }
}

extension H2OMessage {
    /// The message in the form that chat templates read.
    package var fields: [String: any Sendable] {
        var fields: [String: any Sendable] = ["role": role.rawValue, "content": text]
        if let thoughts { fields["reasoning_content"] = thoughts }
        if !toolCalls.isEmpty { fields["tool_calls"] = toolCalls.map(\.fields) }
        if let toolCallID { fields["tool_call_id"] = toolCallID }
        if let toolName { fields["name"] = toolName }
        return fields
    }
}

extension H2OToolCall {
    fileprivate var fields: [String: any Sendable] {
        let function: [String: any Sendable] = [
            "name": name, "arguments": arguments.mapValues(\.plain),
        ]
        return ["type": "function", "id": id, "function": function]
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

extension JSONValue {
    /// The value in the types that chat templates read. They read no `NSNull`.
    package var plain: any Sendable {
        switch self {
        case .null: Optional<String>.none
        case .bool(let value): value
        case .int(let value): value
        case .double(let value): value
        case .string(let value): value
        case .array(let values): values.map(\.plain)
        case .object(let fields): fields.mapValues(\.plain)
        }
    }
}
