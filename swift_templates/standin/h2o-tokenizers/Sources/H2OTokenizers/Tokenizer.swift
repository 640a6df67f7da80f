// A stand-in for the Tokenizer protocol and AutoTokenizer of swift-transformers. It has no tokenizers.

import Foundation

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
        inOrder messages: [[String: any Sendable]],
        tools: [[String: any Sendable]]?,
        additionalContext: [String: any Sendable]?,
        addGenerationPrompt: Bool
    ) throws -> [Int]
}

public enum AutoTokenizer {
    public static func from(directory: URL) throws -> any Tokenizer {
        throw NoTokenizers()
    }
}

struct NoTokenizers: LocalizedError {
    var errorDescription: String? {
        "The CPU stand-in for swift-transformers has no tokenizers. Run `h2o-pack vendor` and build "
            + "again."
    }
}
