// Stands in for the Tokenizer protocol of swift-tokenizers 0.1.0.

import Foundation

public typealias Message = [String: any Sendable]
public typealias ToolSpec = [String: any Sendable]

public enum TokenizerError: LocalizedError, Equatable {
    case missingConfig
    case missingVocab
    case missingChatTemplate
    case unsupportedComponent(kind: String, type: String)

    public var errorDescription: String? {
        switch self {
        case .missingConfig: "Tokenizer configuration is missing."
        case .missingVocab: "Vocabulary file is missing from the tokenizer configuration."
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
