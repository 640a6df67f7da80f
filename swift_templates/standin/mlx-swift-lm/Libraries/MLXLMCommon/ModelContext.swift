// A stand-in for a loaded model of mlx-swift-lm: its configuration, tokenizer, chat session
// and adapters.

import Foundation
import MLXNN

public struct ModelConfiguration: Sendable {
    public var extraEOSTokens = Set<String>()
    public var stopStrings: Set<String>?
    public var eosTokenIds = Set<Int>()
    public var toolCallFormat: ToolCallFormat?
    /// How the model writes thoughts; nil if it is not known.
    public var reasoningConfig: ReasoningConfig?

    public init(id: String, eosTokenIds: Set<Int> = []) {
        self.eosTokenIds = eosTokenIds
    }
}

extension ModelConfiguration {
    public var effectiveStopStrings: Set<String> { stopStrings ?? extraEOSTokens }
}

public struct UserInput {}

public protocol UserInputProcessor: Sendable {
    func prepare(input: UserInput) async throws -> LMInput
}

public struct ModelContext {
    public var configuration: ModelConfiguration
    public var model: any LanguageModel
    public var processor: any UserInputProcessor
    public var tokenizer: Tokenizer

    public init(
        configuration: ModelConfiguration, model: any LanguageModel,
        processor: any UserInputProcessor, tokenizer: any Tokenizer
    ) {
        self.configuration = configuration
        self.model = model
        self.processor = processor
        self.tokenizer = tokenizer
    }
}

public protocol Tokenizer: Sendable {
    func encode(text: String, addSpecialTokens: Bool) -> [Int]
    func decode(tokenIds: [Int], skipSpecialTokens: Bool) -> String
    func convertTokenToId(_ token: String) -> Int?
    func convertIdToToken(_ id: Int) -> String?

    var bosToken: String? { get }
    var eosToken: String? { get }
    var unknownToken: String? { get }

    func applyChatTemplate(
        messages: [[String: any Sendable]],
        tools: [[String: any Sendable]]?,
        additionalContext: [String: any Sendable]?
    ) throws -> [Int]
}

extension Tokenizer {
    public var eosTokenId: Int? { eosToken.flatMap(convertTokenToId) }

    public func applyChatTemplate(messages: [[String: any Sendable]]) throws -> [Int] {
        try applyChatTemplate(messages: messages, tools: nil, additionalContext: nil)
    }
}

public enum TokenizerError: LocalizedError {
    case missingChatTemplate

    public var errorDescription: String? {
        switch self {
        case .missingChatTemplate: "This tokenizer does not have a chat template."
        }
    }
}

/// Loads a model's tokenizer from a folder.
public protocol TokenizerLoader: Sendable {
    func load(from directory: URL) async throws -> any Tokenizer
}

/// A loaded model. The stand-in's factory never returns one.
public struct ModelContainer: Sendable {}

public final class ChatSession {
    public init(
        _ model: ModelContainer, instructions: String? = nil,
        generateParameters: GenerateParameters = GenerateParameters()
    ) {}

    public func respond(to prompt: String) async throws -> String {
        fatalError("the stand-in has no models")
    }
}

public enum ModelAdapterError: Error {
    case unsupportedAdapterType(String)
    case incompatibleModelType
}

public protocol ModelAdapter: Sendable {
    func load(into model: LanguageModel) throws
    func unload(from model: LanguageModel)
}

/// The keys of adapter_config.json that upstream requires. The stand-in uses none of them.
public struct LoRAConfiguration: Codable {
    private let numLayers: Int
    private let fineTuneType: String
    private let loraParameters: Parameters

    private struct Parameters: Codable {}

    private enum CodingKeys: String, CodingKey {
        case numLayers = "num_layers"
        case fineTuneType = "fine_tune_type"
        case loraParameters = "lora_parameters"
    }
}

public struct LoRAContainer: ModelAdapter {
    public init(configuration: LoRAConfiguration, parameters: consuming ModuleParameters) {}

    public static func from(directory: URL) throws -> LoRAContainer {
        throw ModelAdapterError.incompatibleModelType
    }

    public func load(into model: LanguageModel) throws {
        // The models of the stand-in have no weights to adapt.
        throw ModelAdapterError.incompatibleModelType
    }

    public func unload(from model: LanguageModel) {}
}
