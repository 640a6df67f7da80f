// A stand-in for the Tokenizer protocol and AutoTokenizer of swift-tokenizers 0.1.0.

import Foundation

public typealias Message = [String: any Sendable]
public typealias ToolSpec = [String: any Sendable]

public enum TokenizerError: LocalizedError, Equatable {
    case missingConfig
    case missingChatTemplate
    case unsupportedComponent(kind: String, type: String)

    public var errorDescription: String? {
        switch self {
        case .missingConfig: "Tokenizer configuration is missing."
        case .missingChatTemplate:
            "This tokenizer does not have a chat template, and no template was passed."
        case .unsupportedComponent(let kind, let type): "Unsupported \(kind) type: '\(type)'"
        }
    }
}

public enum ChatTemplateArgument {
    case literal(String)
    case name(String)
}

public protocol Tokenizer: Sendable {
    func encode(text: String, addSpecialTokens: Bool) -> [Int]
    func decode(tokens: [Int], skipSpecialTokens: Bool) -> String
    func convertTokenToId(_ token: String) -> Int?
    func convertIdToToken(_ id: Int) -> String?

    var bosToken: String? { get }
    var eosToken: String? { get }
    var unknownToken: String? { get }
    var hasChatTemplate: Bool { get }

    func applyChatTemplate(
        messages: [Message],
        chatTemplate: ChatTemplateArgument?,
        addGenerationPrompt: Bool,
        truncation: Bool,
        maxLength: Int?,
        tools: [ToolSpec]?,
        additionalContext: [String: any Sendable]?
    ) throws -> [Int]
}

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

    /// A merge, written as "a b" or as ["a", "b"].
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

/// Byte-level BPE as in GPT-2. If tokenizer.json says so, each digit is a separate piece.
final class ByteLevelTokenizer: Tokenizer {
    let bosToken: String?
    let eosToken: String?
    let unknownToken: String?
    let hasChatTemplate = false

    private let ids: [String: Int]
    private let tokens: [Int: String]
    private let ranks: [String: Int]
    private let added: [TokenizerFile.Added]
    private let splitsDigits: Bool

    init(_ file: TokenizerFile, settings: TokenizerSettings) throws {
        let splitters = file.preTokenizer.all
        if let other = splitters.first(where: { !["Digits", "ByteLevel"].contains($0.type) }) {
            throw TokenizerError.unsupportedComponent(kind: "pre-tokenizer", type: other.type)
        }
        guard file.model.type == "BPE" else {
            throw TokenizerError.unsupportedComponent(kind: "model", type: file.model.type)
        }
        added = file.addedTokens
        ids = file.model.vocab.merging(added.map { ($0.content, $0.id) }) { $1 }
        tokens = Dictionary(ids.map { ($1, $0) }) { first, _ in first }
        ranks = Dictionary(
            file.model.merges.enumerated().map { ($1.pair.joined(separator: " "), $0) }
        ) { first, _ in first }
        splitsDigits = splitters.contains { $0.individualDigits == true }
        bosToken = settings.bosToken
        eosToken = settings.eosToken
        unknownToken = settings.unkToken
    }

    func encode(text: String, addSpecialTokens: Bool) -> [Int] {
        var rest = text[...]
        var result = [Int]()
        while !rest.isEmpty {
            let next = added.compactMap { token in
                rest.range(of: token.content).map { (token, $0) }
            }.min { $0.1.lowerBound < $1.1.lowerBound }
            result += words(String(rest[..<(next?.1.lowerBound ?? rest.endIndex)])).flatMap(merge)
            guard let (token, range) = next else { break }
            result.append(token.id)
            rest = rest[range.upperBound...]
        }
        return result
    }

    func decode(tokens ids: [Int], skipSpecialTokens: Bool) -> String {
        let special = Set(added.filter(\.special).map(\.id))
        let bytes = ids.filter { !(skipSpecialTokens && special.contains($0)) }.flatMap { id in
            (tokens[id] ?? "").unicodeScalars.flatMap { scalar in
                ByteLetters.byte[scalar].map { [$0] } ?? Array(String(scalar).utf8)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    func convertTokenToId(_ token: String) -> Int? { ids[token] }

    func convertIdToToken(_ id: Int) -> String? { tokens[id] }

    func applyChatTemplate(
        messages: [Message], chatTemplate: ChatTemplateArgument?, addGenerationPrompt: Bool,
        truncation: Bool, maxLength: Int?, tools: [ToolSpec]?,
        additionalContext: [String: any Sendable]?
    ) throws -> [Int] {
        throw TokenizerError.missingChatTemplate
    }

    /// The pieces of a text that are never merged with each other.
    private func words(_ text: String) -> [String] {
        let pattern = #"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"#
        guard splitsDigits else { return matches(pattern, in: text) }
        return matches(#"\p{Nd}|\P{Nd}+"#, in: text).flatMap { matches(pattern, in: $0) }
    }

    private func matches(_ pattern: String, in text: String) -> [String] {
        guard let expression = try? NSRegularExpression(pattern: pattern) else { return [] }
        // Uses UTF-16, because a match may end inside a Character of Swift.
        let units = NSString(string: text)
        let whole = NSRange(location: 0, length: units.length)
        return expression.matches(in: text, range: whole).map { units.substring(with: $0.range) }
    }

    private func merge(_ word: String) -> [Int] {
        var parts = word.utf8.map { String(ByteLetters.letter[Int($0)]) }
        while true {
            let pairs = zip(parts, parts.dropFirst()).enumerated().compactMap { index, pair in
                ranks["\(pair.0) \(pair.1)"].map { (rank: $0, index: index) }
            }
            guard let best = pairs.min(by: { $0 < $1 }) else { break }
            parts.replaceSubrange(
                best.index ... best.index + 1, with: [parts[best.index] + parts[best.index + 1]])
        }
        return parts.compactMap { ids[$0] }
    }
}

/// GPT-2's printable letter for each byte.
enum ByteLetters {
    static let letter: [Unicode.Scalar] = {
        let printable = Set(33 ... 126).union(161 ... 172).union(174 ... 255)
        var next: UInt32 = 256
        return (0 ..< 256).map { byte in
            if printable.contains(byte) { return Unicode.Scalar(UInt8(byte)) }
            defer { next += 1 }
            return Unicode.Scalar(next) ?? " "
        }
    }()

    static let byte = Dictionary(
        uniqueKeysWithValues: letter.enumerated().map { ($1, UInt8($0)) })
}
