// Stands in for tool calls of mlx-swift-lm 3.31.4.

import Foundation

public struct ToolCall: Hashable, Codable, Sendable {
    public struct Function: Hashable, Codable, Sendable {
        public let name: String
        public let arguments: [String: JSONValue]

        public init(name: String, arguments: [String: JSONValue]) {
            self.name = name
            self.arguments = arguments
        }
    }

    public let function: Function
    public let id: String?

    public init(function: Function, id: String? = nil) {
        self.function = function
        self.id = id
    }
}

public protocol ToolCallParser: Sendable {
    /// nil if calls have no marks around them.
    var startTag: String? { get }
    var endTag: String? { get }
    /// The call in a text, with its marks or without.
    func parse(content: String, tools: [[String: any Sendable]]?) -> ToolCall?
}

public enum ToolCallFormat: String, Sendable, Codable, CaseIterable {
    case json
    case lfm2
    case xmlFunction = "xml_function"
    case glm4
    case gemma
    case gemma4
    case kimiK2 = "kimi_k2"
    case minimaxM2 = "minimax_m2"
    case mistral
    case llama3

    public func createParser() -> any ToolCallParser {
        switch self {
        case .json: JSONCalls()
        case .lfm2: PythonCalls(startTag: "<|tool_call_start|>", endTag: "<|tool_call_end|>")
        case .xmlFunction: XMLCalls()
        case .glm4: GLMCalls()
        case .gemma:
            GemmaCalls(
                startTag: "<start_function_call>", endTag: "<end_function_call>",
                quote: "<escape>")
        case .gemma4: GemmaCalls(startTag: "<|tool_call>", endTag: "<tool_call|>", quote: "<|\"|>")
        case .kimiK2: KimiCalls()
        case .minimaxM2: MiniMaxCalls()
        case .mistral: MistralCalls()
        case .llama3: LlamaCalls()
        }
    }

    func generateToolCallID() -> String {
        let id = UUID().uuidString.replacingOccurrences(of: "-", with: "")
        return self == .mistral ? String(id.prefix(9)) : "call_" + id.lowercased()
    }
}
