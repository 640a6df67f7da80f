import Foundation
import MLXLMCommon

/// Chat templates like those of some families, written in Swift. Each renders messages and the
/// beginning of a reply.
package enum ChatTemplate: CaseIterable, Sendable {
    /// Leaves out the thoughts of earlier turns, and lists the tools in the system prompt.
    case qwen3
    /// As ``qwen3``, but a reply begins with the mark of a thought.
    case qwen3Thinking
    /// Adds its own system prompt if there is none.
    case llama3
    /// Has no system role: the first message of the user begins with the system prompt.
    case gemma
    /// ChatML whose model ends its replies with a token that the template does not write.
    case chatML
    /// Leaves out system prompts, and has no mark before a reply.
    case mistral
    /// Ends an earlier reply with another token than the model.
    case gptOSS
    /// The roles are lines of plain text, and a turn ends without a token.
    case solar
    /// The roles are plain words, and an empty line separates the turns.
    case falcon

    package struct Refused: Error {}

    /// Marks of templates and of tool calls. Each is one token.
    package static let marks = ["<think>", "</think>", "<tool_call>", "</tool_call>"] + special

    /// The marks that decoding leaves out if it skips special tokens.
    fileprivate static let special = [
        "<|im_start|>", "<|im_end|>", "<|begin|>", "<|header|>", "<|end_header|>", "<|eot|>",
        "<bos>", "<start_of_turn>", "<end_of_turn>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>",
        "<start_function_call>", "<end_function_call>", "<escape>", "<|tool_call>",
        "<tool_call|>", "<|\"|>", "<|tool_call_start|>", "<|tool_call_end|>",
        "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>", "<|start|>", "<|channel|>", "<|message|>", "<|call|>",
        "<|end|>", "<|return|>", "<|constrain|>", "<|eom|>", "<s>", "</s>", "[INST]", "[/INST]",
        "<|endoftext|>",
    ]

    /// The mark that ends a turn.
    package var stop: String {
        switch self {
        case .qwen3, .qwen3Thinking: "<|im_end|>"
        case .chatML, .solar, .falcon: "<|endoftext|>"
        case .mistral: "</s>"
        case .gptOSS: "<|return|>"
        case .llama3: "<|eot|>"
        case .gemma: "<end_of_turn>"
        }
    }

    /// The text that begins a reply.
    package func begin(thinks: Bool = true) -> String {
        switch self {
        case .qwen3: "<|im_start|>assistant\n" + (thinks ? "" : "<think>\n\n</think>\n\n")
        case .qwen3Thinking: "<|im_start|>assistant\n<think>\n"
        case .llama3: "<|header|>assistant<|end_header|>\n\n"
        case .gemma: "<start_of_turn>model\n"
        case .chatML: "<|im_start|>assistant\n"
        case .mistral: ""
        case .gptOSS: "<|start|>assistant"
        case .solar: "### Assistant:\n"
        case .falcon: "\n\nAssistant:"
        }
    }

    /// Whether the model thinks before it answers.
    package var thinks: Bool { self == .qwen3 || self == .qwen3Thinking }

    package func render(
        _ messages: [[String: any Sendable]], tools: [[String: any Sendable]]? = nil,
        context: [String: any Sendable]? = nil, beginsReply: Bool = true
    ) throws -> String {
        let turns = messages.map(Turn.init)
        let body =
            switch self {
            case .qwen3, .qwen3Thinking: qwen3(turns, tools ?? [])
            case .llama3: llama3(turns)
            case .gemma: try gemma(turns)
            case .chatML: turns.map { block($0.role, $0.content) }.joined()
            case .mistral: mistral(turns)
            case .gptOSS: turns.map(harmony).joined()
            case .solar: turns.map { "### \($0.role.capitalized):\n\($0.content)\n\n" }.joined()
            case .falcon:
                turns.map { "\($0.role.capitalized): \($0.trimmed)" }.joined(separator: "\n\n")
            }
        guard beginsReply else { return body }
        return body + begin(thinks: context?["enable_thinking"] as? Bool ?? true)
    }

    private struct Turn {
        let role: String
        let content: String
        let thoughts: String?
        let calls: [String]

        var trimmed: String { content.trimmingCharacters(in: .whitespacesAndNewlines) }

        init(_ message: [String: any Sendable]) {
            role = message["role"] as? String ?? ""
            content = message["content"] as? String ?? ""
            thoughts = message["reasoning_content"] as? String
            let calls = message["tool_calls"] as? [[String: any Sendable]] ?? []
            self.calls = calls.map { call in
                let function = call["function"] as? [String: any Sendable] ?? [:]
                let arguments = function["arguments"] as? [String: any Sendable] ?? [:]
                let name = function["name"] as? String ?? ""
                return #"{"name": "\#(name)", "arguments": \#(ChatTemplate.json(arguments))}"#
            }
        }
    }

    private func qwen3(_ messages: [Turn], _ tools: [[String: any Sendable]]) -> String {
        let lastAsked = messages.lastIndex { $0.role == "user" } ?? 0
        var text = ""
        var rest = messages[...]
        let system = rest.first?.role == "system" ? rest.removeFirst().content : ""
        let told = tools.map { "\n" + Self.json($0) }.joined()
        if !system.isEmpty || !tools.isEmpty { text += block("system", system + told) }
        for (index, message) in zip(rest.indices, rest) {
            switch message.role {
            case "assistant":
                let thoughts = index > lastAsked ? message.thoughts : nil
                let calls = message.calls.map { "\n<tool_call>\n\($0)\n</tool_call>" }.joined()
                text += block(
                    "assistant",
                    (thoughts.map { "<think>\n\($0)\n</think>\n\n" } ?? "") + message.content
                        + (message.content.isEmpty ? String(calls.dropFirst()) : calls))
            case "tool":
                text += block("user", "<tool_response>\n\(message.content)\n</tool_response>")
            default:
                text += block(message.role, message.content)
            }
        }
        return text
    }

    private func block(_ role: String, _ content: String) -> String {
        "<|im_start|>\(role)\n\(content)<|im_end|>\n"
    }

    private func mistral(_ messages: [Turn]) -> String {
        "<s>"
            + messages.filter { $0.role != "system" }.map { message in
                message.role == "assistant"
                    ? " \(message.trimmed)</s>" : "[INST] \(message.content)[/INST]"
            }.joined()
    }

    private func harmony(_ message: Turn) -> String {
        let channel = message.role == "assistant" ? "<|channel|>final" : ""
        return "<|start|>\(message.role)\(channel)<|message|>\(message.content)<|end|>"
    }

    private func llama3(_ messages: [Turn]) -> String {
        let system = messages.first.flatMap { $0.role == "system" ? $0.content : nil } ?? ""
        let rest = messages.drop { $0.role == "system" }
        let blocks = [("system", "Cutting Knowledge Date: December 2023\n\n" + system)]
            + rest.map { ($0.role, $0.trimmed) }
        return "<|begin|>"
            + blocks.map { "<|header|>\($0)<|end_header|>\n\n\($1)<|eot|>" }.joined()
    }

    private func gemma(_ messages: [Turn]) throws -> String {
        let system = messages.first.flatMap { $0.role == "system" ? $0.content : nil }
        let rest = messages.drop { $0.role == "system" }
        var text = "<bos>"
        for (turn, message) in rest.enumerated() {
            guard (message.role == "user") == (turn % 2 == 0) else { throw Refused() }
            let content = message.trimmed
            let told = turn == 0 ? system.map { $0 + "\n\n" } ?? "" : ""
            let role = message.role == "user" ? "user" : "model"
            text += "<start_of_turn>\(role)\n\(told)\(content)<end_of_turn>\n"
        }
        return text
    }

    private static func json(_ value: [String: any Sendable]) -> String {
        let options: JSONSerialization.WritingOptions = [.sortedKeys, .withoutEscapingSlashes]
        let data = try? JSONSerialization.data(withJSONObject: value, options: options)
        return String(decoding: data ?? Data(), as: UTF8.self)
    }
}

/// A tokenizer in which each character and each mark of a template is a token.
package struct TestTokenizer: TemplatedTokenizer {
    private typealias Fields = [String: any Sendable]

    private let tokens: [String]
    private let ids: [String: Int]
    /// The tokens with several characters.
    private let marks: [String]
    private let onDecode: @Sendable () -> Void
    /// The chat template; nil for none.
    private let render:
        (@Sendable ([Fields], _ tools: [Fields]?, Fields?, _ beginsReply: Bool) throws -> String)?

    package let bosToken: String? = nil
    package let eosToken: String?
    package let unknownToken: String? = "?"

    /// A tokenizer of letters.
    ///
    /// - Parameters:
    ///   - hasTemplate: whether there is a chat template, of the form `<u:text|`
    ///   - onDecode: a function that each decoding runs
    package init(
        hasTemplate: Bool = true,
        letters: some Collection<Character> = "?|<>:abcdefghijklmnopqrstuvwxyz .\n01",
        onDecode: @escaping @Sendable () -> Void = {}
    ) {
        tokens = letters.map { String($0) }
        (marks, eosToken, self.onDecode) = ([], "|", onDecode)
        if hasTemplate {
            render = { messages, _, _, beginsReply in
                Self.turns(messages) + (beginsReply ? "<a:" : "")
            }
        } else {
            render = nil
        }
        ids = Self.ids(of: tokens)
    }

    /// A tokenizer with the chat template of a family.
    package init(_ template: ChatTemplate) {
        marks = ChatTemplate.marks
        tokens = ["?"] + marks + ["\n"] + (32 ..< 127).map { String(UnicodeScalar(UInt8($0))) }
        (eosToken, onDecode) = (template.stop, {})
        render = { try template.render($0, tools: $1, context: $2, beginsReply: $3) }
        ids = Self.ids(of: tokens)
    }

    private static func turns(_ messages: [Fields]) -> String {
        messages.map { message in
            let role = (message["role"] as? String)?.prefix(1) ?? "?"
            return "<\(role):\(message["content"] as? String ?? "")|\n"
        }.joined()
    }

    private static func ids(of tokens: [String]) -> [String: Int] {
        Dictionary(zip(tokens, tokens.indices), uniquingKeysWith: { _, last in last })
    }

    /// The text of each token for a grammar; a NUL character for a mark, because grammars do not
    /// allow it.
    package var letters: [String] { tokens.map { $0.count == 1 ? $0 : "\u{0}" } }

    /// The token that ends a turn.
    package var stop: Int { eosTokenId ?? 0 }

    package func tokens(of text: String) -> [Int] {
        var (rest, found) = (text[...], [Int]())
        let beginnings = Set(marks.compactMap(\.first))
        while let character = rest.first {
            let mark = beginnings.contains(character) ? marks.first { rest.hasPrefix($0) } : nil
            let next = mark ?? String(character)
            found.append(ids[next] ?? 0)
            rest = rest.dropFirst(next.count)
        }
        return found
    }

    package func encode(text: String, addSpecialTokens: Bool) -> [Int] { tokens(of: text) }

    package func decode(tokenIds: [Int], skipSpecialTokens: Bool) -> String {
        onDecode()
        let texts = tokenIds.map { tokens[$0] }
        guard skipSpecialTokens else { return texts.joined() }
        return texts.filter { !ChatTemplate.special.contains($0) }.joined()
    }

    package func convertTokenToId(_ token: String) -> Int? { ids[token] }

    package func convertIdToToken(_ id: Int) -> String? {
        tokens.indices.contains(id) ? tokens[id] : nil
    }

    package func applyChatTemplate(
        messages: [[String: any Sendable]], tools: [[String: any Sendable]]?,
        additionalContext: [String: any Sendable]?, addGenerationPrompt: Bool
    ) throws -> [Int] {
        guard let render else { throw TokenizerError.missingChatTemplate }
        return tokens(of: try render(messages, tools, additionalContext, addGenerationPrompt))
    }
}
