import Foundation
import Jinja

extension AutoTokenizer {
    /// Makes the tokenizer of a model folder.
    ///
    /// - Parameter directory: contains tokenizer.json, tokenizer_config.json, and chat_template.jinja
    ///   if the template is not in tokenizer_config.json
    /// - Throws: `TokenizerError` for a kind of tokenizer that this library lacks, or an error of
    ///   reading
    public static func from(directory: URL) throws -> any Tokenizer {
        func contents(of name: String) throws -> Config {
            try YYJSONParser.parseToConfig(Data(contentsOf: directory.appending(path: name)))
        }
        var settings = try contents(of: "tokenizer_config.json").dictionary(or: [:])
        let template = directory.appending(path: "chat_template.jinja")
        if FileManager.default.fileExists(atPath: template.path) {
            settings["chat_template"] = Config(try String(contentsOf: template, encoding: .utf8))
        }
        return try from(
            tokenizerConfig: Config(settings), tokenizerData: contents(of: "tokenizer.json"))
    }
}

extension Tokenizer {
    /// Renders a conversation with the tokenizer's chat template, and returns its ids. The keys of
    /// messages and tools are in the order that h2o-pack gives them in Python too.
    ///
    /// - Parameter addGenerationPrompt: whether the beginning of a reply follows
    /// - Throws: the template's own error
    public func applyChatTemplate(
        inOrder messages: [[String: any Sendable]], tools: [[String: any Sendable]]?,
        additionalContext: [String: any Sendable]?, addGenerationPrompt: Bool
    ) throws -> [Int] {
        var context = try (additionalContext ?? [:]).mapValues {
            try Value(inOrder: $0) as any Sendable
        }
        context["messages"] = try Value(inOrder: messages)
        if let tools { context["tools"] = try Value(inOrder: tools) }
        // The context's messages replace the argument.
        return try applyChatTemplate(
            messages: [], chatTemplate: nil, addGenerationPrompt: addGenerationPrompt,
            truncation: false, maxLength: nil, tools: nil, additionalContext: context)
    }
}

extension Value {
    /// Keys of messages and tools that come first, as in bridge/h2o_pack/resolved/template.py; other
    /// keys come after them, by the alphabet.
    private static let first = [
        "role", "content", "reasoning_content", "tool_calls", "tool_call_id", "type", "id",
        "function", "name", "description", "parameters", "arguments",
        "enum", "items", "anyOf", "properties", "required",
    ]

    /// - Throws: an error for a value that templates cannot read
    fileprivate init(inOrder value: Any) throws {
        switch value {
        case is NSNull: self = .null
        case let values as [any Sendable]: self = .array(try values.map(Value.init(inOrder:)))
        case let fields as [String: any Sendable]: self = try Value.object(inOrder: fields)
        default: self = try Value(any: value)
        }
    }

    private static func object(inOrder fields: [String: any Sendable]) throws -> Value {
        let places = Dictionary(uniqueKeysWithValues: zip(first, first.indices))
        let keys = fields.keys.sorted { one, other in
            let place = (places[one] ?? first.count, places[other] ?? first.count)
            guard place.0 == place.1 else { return place.0 < place.1 }
            return one.unicodeScalars.lexicographicallyPrecedes(other.unicodeScalars)
        }
        guard case .object(var object) = Value.object([:]) else { return .null }
        for key in keys { object[.string(key)] = try fields[key].map(Value.init(inOrder:)) }
        return .object(object)
    }
}
