import Foundation
import MLXLMCommon

/// The request that Python writes.
struct Request: Decodable {
    /// The model's folder.
    let model: String
    /// Tokens that end a reply.
    let stops: Set<Int>
    let items: [Item]
}

/// One question of a request.
enum Item: Decodable {
    /// Whether the tokenizer loads.
    case load
    /// The ids of a text.
    case encode(text: String, special: Bool)
    /// The text of ids, decoded at once and as a reply that arrives token by token.
    case decode(ids: [Int])
    /// The ids of messages, written with the chat template.
    case template(Conversation, addGenerationPrompt: Bool)
    /// The ids that a session reads in each turn. `turns` are the new messages of each turn; a turn
    /// but the first begins with the reply to the one before.
    case turns(Conversation, turns: [[H2OMessage]])
    /// The values that mlx-swift-lm's decoders take from a config.json.
    case configuration(file: String)

    /// The messages, tools and variables of a chat template, in JSON.
    struct Conversation: Decodable {
        var messages: [JSONValue] = []
        var tools: [JSONValue] = []
        var variables: [String: JSONValue] = [:]
    }

    private enum Keys: String, CodingKey {
        case kind, text, special, ids, turns, file
        case conversation
        case addGenerationPrompt = "add_generation_prompt"
    }

    init(from decoder: any Swift.Decoder) throws {
        let fields = try decoder.container(keyedBy: Keys.self)
        func field<Value: Decodable>(_ key: Keys) throws -> Value {
            try fields.decode(Value.self, forKey: key)
        }
        switch try field(.kind) as String {
        case "load": self = .load
        case "encode": self = .encode(text: try field(.text), special: try field(.special))
        case "decode": self = .decode(ids: try field(.ids))
        case "template":
            self = .template(
                try field(.conversation), addGenerationPrompt: try field(.addGenerationPrompt))
        case "turns": self = .turns(try field(.conversation), turns: try field(.turns))
        case "configuration": self = .configuration(file: try field(.file))
        case let kind:
            throw DecodingError.dataCorruptedError(
                forKey: .kind, in: fields, debugDescription: "\(kind) is not a kind of item")
        }
    }
}

/// The answer to an item; the fields of other kinds of items are left out.
struct Answer: Encodable {
    var item = 0
    var ids: [Int]?
    /// The text of all ids.
    var text: String?
    /// The text of all ids without special tokens.
    var plain: String?
    /// As `text` and `plain`, put together from the pieces of a reply.
    var streamedText: String?
    var streamedPlain: String?
    /// The ids that a session reads in each turn.
    var turns: [Turn]?
    var values: JSONValue?
    /// Why there is no answer.
    var error: String?

    struct Turn: Encodable {
        let ids: [Int]
        /// The number of tokens at the end of the earlier prompt that these ids replace.
        let replaced: Int
    }

    private enum CodingKeys: String, CodingKey {
        case item, ids, text, plain, turns, values, error
        case streamedText = "streamed_text"
        case streamedPlain = "streamed_plain"
    }
}
