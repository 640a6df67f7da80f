// Stands in for tool calls of mlx-swift-lm 3.31.4, in the JSON format alone: Hermes' and
// Qwen's, `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.

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
    func parse(content: String, tools: [[String: any Sendable]]?) -> ToolCall?
}

public enum ToolCallFormat: String, Sendable, Codable, CaseIterable {
    case json

    public func createParser() -> any ToolCallParser { JSONToolCallParser() }
}

struct JSONToolCallParser: ToolCallParser {
    let startTag: String? = "<tool_call>"
    let endTag: String? = "</tool_call>"

    func parse(content: String, tools: [[String: any Sendable]]?) -> ToolCall? {
        let inner = content.replacingOccurrences(of: "<tool_call>", with: "")
            .replacingOccurrences(of: "</tool_call>", with: "")
        let names = tools?.compactMap {
            ($0["function"] as? [String: any Sendable])?["name"] as? String
        }
        guard let call = try? JSONDecoder().decode(ToolCall.Function.self, from: Data(inner.utf8)),
            names?.contains(call.name) ?? true
        else { return nil }
        return ToolCall(function: call)
    }
}

/// Takes calls out of text. One that cannot be read stays in it.
public class ToolCallProcessor {
    private let parser: any ToolCallParser
    private let tools: [[String: any Sendable]]?
    private var held = ""

    public var toolCalls = [ToolCall]()

    public init(format: ToolCallFormat = .json, tools: [[String: any Sendable]]? = nil) {
        parser = format.createParser()
        self.tools = tools
    }

    /// Returns the text before and after calls, nil while there may be one.
    public func processChunk(_ chunk: String) -> String? {
        held += chunk
        var text = ""
        while let start = held.range(of: "<tool_call>") {
            guard let end = held.range(of: "</tool_call>") else { break }
            text += held[..<start.lowerBound]
            let call = String(held[start.lowerBound ..< end.upperBound])
            if let parsed = parser.parse(content: call, tools: tools) {
                toolCalls.append(parsed)
            } else {
                text += call
            }
            held = String(held[end.upperBound...])
        }
        if let start = held.firstIndex(of: "<") {
            text += held[..<start]
            held = String(held[start...])
            let tag = held.prefix("<tool_call>".count)
            if "<tool_call>".hasPrefix(tag) { return text.isEmpty ? nil : text }
        }
        text += held
        held = ""
        return text.isEmpty ? nil : text
    }

    /// Returns the text that was held back.
    public func processEOS(returnBufferedText: Bool = true) -> String? {
        defer { held = "" }
        return held.isEmpty || !returnBufferedText ? nil : held
    }
}
