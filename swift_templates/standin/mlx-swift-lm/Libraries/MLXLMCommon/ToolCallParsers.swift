// Stand in for the parsers of mlx-swift-lm 3.31.4 whose arguments have marks of their own. Each
// takes and refuses what upstream's does.

import Foundation

struct XMLCalls: ToolCallParser {
    let startTag: String? = "<tool_call>"
    let endTag: String? = "</tool_call>"

    func parse(content: String, tools: [[String: any Sendable]]?) -> ToolCall? {
        guard let function = content.parts(from: "<function=", to: "</function>").first,
            let (name, rest) = function.halves(around: ">")
        else { return nil }
        var arguments = [String: JSONValue]()
        for parameter in rest.parts(from: "<parameter=", to: "</parameter>") {
            guard let (key, value) = parameter.halves(around: ">") else { break }
            arguments[key] = tools.value(value, of: key, in: name)
        }
        return ToolCall(function: .init(name: name, arguments: arguments))
    }
}

struct MiniMaxCalls: ToolCallParser {
    let startTag: String? = "<minimax:tool_call>"
    let endTag: String? = "</minimax:tool_call>"

    func parse(content: String, tools: [[String: any Sendable]]?) -> ToolCall? {
        guard let call = content.parts(from: "<invoke name=", to: "</invoke>").first,
            let (quoted, rest) = call.halves(around: ">")
        else { return nil }
        let name = quoted.removing("\"")
        var arguments = [String: JSONValue]()
        for parameter in rest.parts(from: "<parameter name=", to: "</parameter>") {
            guard let (key, value) = parameter.halves(around: ">") else { break }
            arguments[key.removing("\"")] = tools.value(value, of: key.removing("\""), in: name)
        }
        return ToolCall(function: .init(name: name, arguments: arguments))
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
    /// An argument, of the type that the tool declares. Without one it is a text.
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
