// A stand-in for tool calls of mlx-swift-lm. Each parser reads the calls that models write in its
// format, and refuses others, as upstream's parser does. The formats whose marks are tokens, of
// gpt-oss and Muse, have no parser here.

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
    /// The mark before a call; nil if calls have no marks around them.
    var startTag: String? { get }
    var endTag: String? { get }
    /// The call in a text that may contain the marks; nil if the text is not a call.
    func parse(content: String, tools: [[String: any Sendable]]?) -> ToolCall?
}

public enum ToolCallFormat: String, Sendable, Codable, CaseIterable {
    case json
    case lfm2
    case xmlFunction = "xml_function"
    case qwen35 = "qwen3_5"
    case glm4
    case gemma
    case gemma4
    case kimiK2 = "kimi_k2"
    case minimaxM2 = "minimax_m2"
    case atem
    case mistral
    case llama3
    case gptOSS = "gpt_oss"

    /// The formats that this stand-in can read.
    public static let allCases: [ToolCallFormat] = [
        .json, .lfm2, .xmlFunction, .qwen35, .glm4, .gemma, .gemma4, .kimiK2, .minimaxM2, .mistral,
        .llama3,
    ]

    public func createParser() -> any ToolCallParser {
        switch self {
        case .json, .gptOSS, .atem: JSONCalls()
        case .lfm2: PythonCalls(startTag: "<|tool_call_start|>", endTag: "<|tool_call_end|>")
        case .xmlFunction, .qwen35:
            TaggedCalls(
                startTag: "<tool_call>", endTag: "</tool_call>", call: "function")
        case .glm4: GLMCalls()
        case .gemma:
            GemmaCalls(
                startTag: "<start_function_call>", endTag: "<end_function_call>",
                quote: "<escape>")
        case .gemma4: GemmaCalls(startTag: "<|tool_call>", endTag: "<tool_call|>", quote: "<|\"|>")
        case .kimiK2: KimiCalls()
        case .minimaxM2:
            TaggedCalls(
                startTag: "<minimax:tool_call>", endTag: "</minimax:tool_call>",
                call: "invoke", attribute: " name")
        case .mistral: MistralCalls()
        case .llama3: LlamaCalls()
        }
    }

    /// The decoder of a format whose marks are tokens; the stand-in has none.
    func makeProtocolTokenStreamDecoder(
        tokenizer: any Tokenizer, tools: [[String: any Sendable]]?, stopStrings: Set<String>
    ) -> (any TokenStreamDecoder)? { nil }

    func generateToolCallID() -> String {
        let id = UUID().uuidString.replacingOccurrences(of: "-", with: "")
        return self == .mistral ? String(id.prefix(9)) : "call_" + id.lowercased()
    }
}

/// A decoder of replies whose marks are tokens and not text.
protocol TokenStreamDecoder {
    var additionalStopTokenIDs: Set<Int> { get }
    var isInsideReasoning: Bool { get }

    /// Returns false at the end of the reply.
    mutating func push(_ token: Int, emit: (TokenStreamEvent) -> Bool) -> Bool
    mutating func finish(emit: (TokenStreamEvent) -> Bool) -> Bool
}

enum TokenStreamEvent {
    case reasoning(String)
    case response(String)
    case toolCall(ToolCall)
    case protocolError(String)
    case rejectedToolCall(RejectedToolCall)
    case stop
}

struct RejectedToolCall {
    let rawTextPreview: String
}

public enum JSONValue: Hashable, Codable, Sendable {
    case null
    case bool(Bool)
    case int(Int)
    case double(Double)
    case string(String)
    case array([JSONValue])
    case object([String: JSONValue])

    public init(from decoder: any Decoder) throws {
        let value = try decoder.singleValueContainer()
        if value.decodeNil() {
            self = .null
        } else if let known =
            (try? value.decode(Bool.self)).map(JSONValue.bool)
            ?? (try? value.decode(Int.self)).map(JSONValue.int)
            ?? (try? value.decode(Double.self)).map(JSONValue.double)
            ?? (try? value.decode(String.self)).map(JSONValue.string)
            ?? (try? value.decode([JSONValue].self)).map(JSONValue.array)
        {
            self = known
        } else {
            self = .object(try value.decode([String: JSONValue].self))
        }
    }

    public static func from(_ value: Any) -> JSONValue {
        switch value {
        case let value as Bool: .bool(value)
        case let value as Int: .int(value)
        case let value as Double: .double(value)
        case let value as String: .string(value)
        case let value as [Any]: .array(value.map(from))
        case let value as [String: Any]: .object(value.mapValues(from))
        default: .null
        }
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .null: try container.encodeNil()
        case .bool(let value): try container.encode(value)
        case .int(let value): try container.encode(value)
        case .double(let value): try container.encode(value)
        case .string(let value): try container.encode(value)
        case .array(let values): try container.encode(values)
        case .object(let fields): try container.encode(fields)
        }
    }
}

struct JSONCalls: ToolCallParser {
    let startTag: String? = "<tool_call>"
    let endTag: String? = "</tool_call>"

    func parse(content: String, tools: [[String: any Sendable]]?) -> ToolCall? {
        let text = content.removing(startTag, endTag)
        let call = try? JSONDecoder().decode(ToolCall.Function.self, from: Data(text.utf8))
        return call.map { ToolCall(function: $0) }
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

    /// Parses a text as JSON; a text that is not JSON becomes a string.
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

    /// The texts before and after a mark, without white space; nil if the mark is missing.
    func halves(around mark: String) -> (before: String, after: String)? {
        guard let range = range(of: mark) else { return nil }
        let (before, after) = (self[..<range.lowerBound], self[range.upperBound...])
        return (String(before).removing(), String(after).removing())
    }

    /// All texts between a start mark and an end mark.
    func parts(from start: String, to end: String) -> [String] {
        components(separatedBy: start).dropFirst().compactMap { $0.halves(around: end)?.before }
    }
}

/// Calls in a tag with a name, with parameters in tags with names.
struct TaggedCalls: ToolCallParser {
    let startTag: String?
    let endTag: String?
    /// The tag of a call.
    let call: String
    /// What is between a tag and the equals sign before its name.
    var attribute = ""

    func parse(content: String, tools: [[String: any Sendable]]?) -> ToolCall? {
        guard let (name, rest) = named(call, in: content).first else { return nil }
        var arguments = [String: JSONValue]()
        for (key, value) in named("parameter", in: rest) {
            arguments[key] = tools.value(value, of: key, in: name)
        }
        return ToolCall(function: .init(name: name, arguments: arguments))
    }

    /// The names and the contents of all tags of a kind.
    private func named(_ tag: String, in text: String) -> [(name: String, content: String)] {
        text.parts(from: "<\(tag)\(attribute)=", to: "</\(tag)>").compactMap { part in
            part.halves(around: ">").map { ($0.before.removing("\""), $0.after) }
        }
    }
}

struct GLMCalls: ToolCallParser {
    let startTag: String? = "<tool_call>"
    let endTag: String? = "</tool_call>"

    func parse(content: String, tools: [[String: any Sendable]]?) -> ToolCall? {
        let text = content.removing(startTag, endTag)
        guard let name = text.halves(around: "<arg_key>")?.before, !name.isEmpty else {
            return nil
        }
        var arguments = [String: JSONValue]()
        for pair in text.parts(from: "<arg_key>", to: "</arg_value>") {
            guard let (key, value) = pair.halves(around: "</arg_key>") else { break }
            arguments[key] = tools.value(value.removing("<arg_value>"), of: key, in: name)
        }
        return ToolCall(function: .init(name: name, arguments: arguments))
    }
}

struct GemmaCalls: ToolCallParser {
    let startTag: String?
    let endTag: String?
    let quote: String

    func parse(content: String, tools: [[String: any Sendable]]?) -> ToolCall? {
        guard let call = content.removing(startTag, endTag).halves(around: "call:")?.after,
            let open = call.firstIndex(of: "{"), let close = call.lastIndex(of: "}")
        else { return nil }
        let name = String(call[..<open])
        var arguments = [String: JSONValue]()
        var rest = String(call[call.index(after: open) ..< close])
        while let (key, value) = rest.halves(around: ":") {
            if value.hasPrefix(quote) {
                guard let (text, next) = String(value.dropFirst(quote.count)).halves(around: quote)
                else { break }
                arguments[key] = .string(text)
                rest = next.hasPrefix(",") ? String(next.dropFirst()) : next
            } else {
                let parts = value.halves(around: ",") ?? (value, "")
                arguments[key] = JSONValue(reading: parts.before)
                rest = parts.after
            }
        }
        return name.isEmpty ? nil : ToolCall(function: .init(name: name, arguments: arguments))
    }
}

struct PythonCalls: ToolCallParser {
    let startTag: String?
    let endTag: String?

    func parse(content: String, tools: [[String: any Sendable]]?) -> ToolCall? {
        var text = content.removing(startTag, endTag)
        if text.hasPrefix("["), text.hasSuffix("]") { text = String(text.dropFirst().dropLast()) }
        guard let open = text.firstIndex(of: "("), let close = text.lastIndex(of: ")") else {
            return nil
        }
        let name = String(text[..<open])
        guard !name.isEmpty, name.allSatisfy({ $0.isLetter || $0.isNumber || $0 == "_" }) else {
            return nil
        }
        let pairs = text[text.index(after: open) ..< close]
            .matches(of: /(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^,\)]+)/)
        var arguments = [String: JSONValue]()
        for pair in pairs {
            let quotes = CharacterSet(charactersIn: "'\"")
            let value = String(pair.2).removing().trimmingCharacters(in: quotes)
            arguments[String(pair.1)] = tools.value(value, of: String(pair.1), in: name)
        }
        return ToolCall(function: .init(name: name, arguments: arguments))
    }
}

extension [[String: any Sendable]]? {
    /// An argument of the type that the tool declares; without a declared type, a string.
    fileprivate func value(_ text: String, of key: String, in name: String) -> JSONValue {
        for case let function as [String: any Sendable] in (self ?? []).map({ $0["function"] })
        where function["name"] as? String == name {
            let schema = function["parameters"] as? [String: any Sendable]
            let properties = schema?["properties"] as? [String: any Sendable]
            let property = properties?[key] as? [String: any Sendable]
            guard let type = property?["type"] as? String, type != "string" else { break }
            return JSONValue(reading: text)
        }
        return .string(text)
    }
}

public enum ToolParameterType: String {
    case string
    case int = "integer"
}

public struct ToolParameter {
    public let name: String
    public let type: ToolParameterType
    public let description: String
    public let isRequired: Bool

    public var schema: [String: any Sendable] {
        ["type": type.rawValue, "description": description]
    }

    public static func required(
        _ name: String, type: ToolParameterType, description: String
    ) -> ToolParameter {
        ToolParameter(name: name, type: type, description: description, isRequired: true)
    }

    public static func optional(
        _ name: String, type: ToolParameterType, description: String
    ) -> ToolParameter {
        ToolParameter(name: name, type: type, description: description, isRequired: false)
    }
}
