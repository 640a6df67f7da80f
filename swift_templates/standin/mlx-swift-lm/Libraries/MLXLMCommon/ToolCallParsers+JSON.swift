// Stand in for the parsers of mlx-swift-lm 3.31.4 whose arguments are JSON. Each takes and
// refuses what upstream's does.

import Foundation

struct JSONCalls: ToolCallParser {
    let startTag: String? = "<tool_call>"
    let endTag: String? = "</tool_call>"

    func parse(content: String, tools: [[String: any Sendable]]?) -> ToolCall? {
        let text = content.removing(startTag, endTag)
        let names = tools?.compactMap {
            ($0["function"] as? [String: any Sendable])?["name"] as? String
        }
        guard let call = try? JSONDecoder().decode(ToolCall.Function.self, from: Data(text.utf8)),
            names?.contains(call.name) ?? true
        else { return nil }
        return ToolCall(function: call)
    }
}

struct KimiCalls: ToolCallParser {
    let startTag: String? = "<|tool_calls_section_begin|>"
    let endTag: String? = "<|tool_calls_section_end|>"

    func parse(content: String, tools: [[String: any Sendable]]?) -> ToolCall? {
        let text = content.removing(
            startTag, endTag, "<|tool_call_begin|>", "<|tool_call_end|>")
        guard let (name, json) = text.halves(around: "<|tool_call_argument_begin|>"),
            let colon = name.lastIndex(of: ":"), let arguments = JSONValue.object(in: json)
        else { return nil }
        let path = name[..<colon].split(separator: ".", maxSplits: 1)
        guard let last = path.last else { return nil }
        return ToolCall(function: .init(name: String(last), arguments: arguments))
    }
}

struct MistralCalls: ToolCallParser {
    let startTag: String? = "[TOOL_CALLS]"
    let endTag: String? = nil

    func parse(content: String, tools: [[String: any Sendable]]?) -> ToolCall? {
        guard let (head, json) = content.removing(startTag).halves(around: "[ARGS]"),
            let arguments = JSONValue.object(in: json)
        else { return nil }
        let (name, id) = head.halves(around: "[CALL_ID]") ?? (head, "")
        guard !name.isEmpty else { return nil }
        return ToolCall(
            function: .init(name: name, arguments: arguments), id: id.isEmpty ? nil : id)
    }
}

struct LlamaCalls: ToolCallParser {
    let startTag: String? = nil
    let endTag: String? = nil

    private struct Call: Decodable {
        let id: String?
        let name: String
        let parameters: [String: JSONValue]?
        let arguments: [String: JSONValue]?
    }

    func parse(content: String, tools: [[String: any Sendable]]?) -> ToolCall? {
        let text = content.removing("<|python_tag|>")
        guard let call = try? JSONDecoder().decode(Call.self, from: Data(text.utf8)) else {
            return PythonCalls(startTag: nil, endTag: nil).parse(content: text, tools: tools)
        }
        let arguments = call.parameters ?? call.arguments ?? [:]
        return ToolCall(function: .init(name: call.name, arguments: arguments), id: call.id)
    }
}

extension JSONValue {
    static func object(in text: String) -> [String: JSONValue]? {
        try? JSONDecoder().decode([String: JSONValue].self, from: Data(text.utf8))
    }

    /// A value as it is written, or the text.
    init(reading text: String) {
        self =
            (try? JSONDecoder().decode(JSONValue.self, from: Data(text.utf8))) ?? .string(text)
    }
}

extension String {
    func removing(_ marks: String?...) -> String {
        marks.compactMap { $0 }.reduce(self) { $0.replacingOccurrences(of: $1, with: "") }
            .trimmingCharacters(in: .whitespacesAndNewlines)
    }

    /// What is before a mark and after it, without white space; nil if it is not there.
    func halves(around mark: String) -> (before: String, after: String)? {
        guard let range = range(of: mark) else { return nil }
        let (before, after) = (self[..<range.lowerBound], self[range.upperBound...])
        return (String(before).removing(), String(after).removing())
    }

    /// What is between the marks, each time.
    func parts(from start: String, to end: String) -> [String] {
        components(separatedBy: start).dropFirst().compactMap { $0.halves(around: end)?.before }
    }
}
