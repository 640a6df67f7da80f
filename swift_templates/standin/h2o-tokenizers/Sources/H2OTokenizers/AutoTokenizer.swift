// Stands in for AutoTokenizer of swift-tokenizers 0.1.0.

import Foundation

public enum AutoTokenizer {
    /// Reads tokenizer.json and tokenizer_config.json of a folder.
    public static func from(directory: URL, strict: Bool = true) async throws -> Tokenizer {
        guard let data = try? Data(contentsOf: directory.appending(path: "tokenizer.json")) else {
            throw TokenizerError.missingConfig
        }
        let decoder = JSONDecoder()
        decoder.keyDecodingStrategy = .convertFromSnakeCase
        let file = try decoder.decode(TokenizerFile.self, from: data)
        let settings = try? Data(contentsOf: directory.appending(path: "tokenizer_config.json"))
        let config = try settings.map { try decoder.decode(TokenizerSettings.self, from: $0) }
        return try ByteLevelTokenizer(file, settings: config ?? TokenizerSettings())
    }
}

/// tokenizer_config.json
struct TokenizerSettings: Decodable {
    var bosToken: String?
    var eosToken: String?
    var unkToken: String?
}

/// tokenizer.json
struct TokenizerFile: Decodable {
    struct Added: Decodable {
        let id: Int
        let content: String
        let special: Bool
    }

    struct Splitter: Decodable {
        let type: String
        let individualDigits: Bool?
        let pretokenizers: [Splitter]?

        var all: [Splitter] { pretokenizers?.flatMap(\.all) ?? [self] }
    }

    struct Model: Decodable {
        let type: String
        let vocab: [String: Int]
        let merges: [Merge]
    }

    /// Written as "a b" or as ["a", "b"].
    struct Merge: Decodable {
        let pair: [String]

        init(from decoder: any Decoder) throws {
            let value = try decoder.singleValueContainer()
            pair =
                try (try? value.decode([String].self))
                ?? value.decode(String.self).split(separator: " ").map(String.init)
        }
    }

    let addedTokens: [Added]
    let preTokenizer: Splitter
    let model: Model
}
