import Foundation
import MLXLMCommon
import H2OTokenizers

/// Loads the tokenizer of a model folder with swift-tokenizers. Never downloads.
public struct BundledTokenizerLoader: TokenizerLoader {
    public init() {}

    /// - Parameter directory: contains tokenizer.json and, if the model has them,
    ///   tokenizer_config.json and a chat template
    /// - Throws: an error of swift-tokenizers for a missing file or an unknown kind
    public func load(from directory: URL) async throws -> any MLXLMCommon.Tokenizer {
        BundledTokenizer(try await AutoTokenizer.from(directory: directory))
    }
}

/// Gives mlx-swift-lm a tokenizer of swift-tokenizers.
struct BundledTokenizer: MLXLMCommon.Tokenizer {
    private let tokenizer: any H2OTokenizers.Tokenizer

    init(_ tokenizer: any H2OTokenizers.Tokenizer) {
        self.tokenizer = tokenizer
    }

    var bosToken: String? { tokenizer.bosToken }

    var eosToken: String? { tokenizer.eosToken }

    var unknownToken: String? { tokenizer.unknownToken }

    func encode(text: String, addSpecialTokens: Bool) -> [Int] {
        tokenizer.encode(text: text, addSpecialTokens: addSpecialTokens)
    }

    func decode(tokenIds: [Int], skipSpecialTokens: Bool) -> String {
        tokenizer.decode(tokens: tokenIds, skipSpecialTokens: skipSpecialTokens)
    }

    func convertTokenToId(_ token: String) -> Int? { tokenizer.convertTokenToId(token) }

    func convertIdToToken(_ id: Int) -> String? { tokenizer.convertIdToToken(id) }

    /// - Throws: `MLXLMCommon.TokenizerError.missingChatTemplate`, or the template's own error
    func applyChatTemplate(
        messages: [[String: any Sendable]],
        tools: [[String: any Sendable]]?,
        additionalContext: [String: any Sendable]?
    ) throws -> [Int] {
        guard tokenizer.hasChatTemplate else {
            throw MLXLMCommon.TokenizerError.missingChatTemplate
        }
        return try tokenizer.applyChatTemplate(
            messages: messages, chatTemplate: nil, addGenerationPrompt: true, truncation: false,
            maxLength: nil, tools: tools, additionalContext: additionalContext)
    }
}
