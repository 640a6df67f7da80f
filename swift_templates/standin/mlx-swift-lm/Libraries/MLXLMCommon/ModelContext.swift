// Stands in for ModelContext and ModelConfiguration of mlx-swift-lm 3.31.4: a model with
// what belongs to it.

import Foundation

public struct ModelConfiguration: Sendable {
    public enum Identifier: Sendable {
        case id(String, revision: String = "main")
        case directory(URL)
    }

    public var id: Identifier
    public var extraEOSTokens: Set<String>
    public var stopStrings: Set<String>?
    public var eosTokenIds: Set<Int>
    public var toolCallFormat: ToolCallFormat?

    public init(id: String, extraEOSTokens: Set<String> = [], eosTokenIds: Set<Int> = []) {
        self.id = .id(id)
        self.extraEOSTokens = extraEOSTokens
        self.eosTokenIds = eosTokenIds
    }

    public init(directory: URL, extraEOSTokens: Set<String> = [], eosTokenIds: Set<Int> = []) {
        self.id = .directory(directory)
        self.extraEOSTokens = extraEOSTokens
        self.eosTokenIds = eosTokenIds
    }
}

extension ModelConfiguration {
    public var effectiveStopStrings: Set<String> { stopStrings ?? extraEOSTokens }
}

public struct UserInput {
    public let prompt: String

    public init(prompt: String) {
        self.prompt = prompt
    }
}

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
