import Foundation

/// A model, as apps name it; its executor generates.
public protocol LanguageModel: Sendable {
    associatedtype Executor: LanguageModelExecutor where Self == Executor.Model

    var capabilities: LanguageModelCapabilities { get }
    var executorConfiguration: Executor.Configuration { get }
}

public protocol LanguageModelExecutor: Sendable {
    associatedtype Configuration: Hashable, Sendable
    associatedtype Model: LanguageModel

    init(configuration: Configuration) throws

    func prewarm(model: Model, transcript: Transcript)

    nonisolated(nonsending) func respond(
        to request: LanguageModelExecutorGenerationRequest, model: Model,
        streamingInto channel: LanguageModelExecutorGenerationChannel
    ) async throws
}

extension LanguageModelExecutor {
    public func prewarm(model: Model, transcript: Transcript) {}
}

public struct LanguageModelCapabilities: Sendable {
    private let capabilities: Set<Capability>

    public init(_ capabilities: some Sequence<Capability>) {
        self.capabilities = Set(capabilities)
    }

    public func contains(_ capability: Capability) -> Bool {
        capabilities.contains(capability)
    }

    public struct Capability: Sendable, Hashable {
        private let name: String

        public static var guidedGeneration: Capability { Capability(name: "guidedGeneration") }
        public static var toolCalling: Capability { Capability(name: "toolCalling") }
        public static var reasoning: Capability { Capability(name: "reasoning") }
        public static var vision: Capability { Capability(name: "vision") }
    }
}

public struct LanguageModelExecutorGenerationRequest: Sendable {
    public var id: UUID
    public var transcript: Transcript
    public var enabledToolDefinitions: [Transcript.ToolDefinition]
    public var schema: GenerationSchema?
    public var generationOptions: GenerationOptions
    public var contextOptions: ContextOptions
    public var metadata: [String: GeneratedContent]

    public init(
        id: UUID, transcript: Transcript, enabledTools: [Transcript.ToolDefinition],
        schema: GenerationSchema?, generationOptions: GenerationOptions,
        contextOptions: ContextOptions,
        metadata: [String: any ConvertibleToGeneratedContent & Sendable]
    ) {
        self.id = id
        self.transcript = transcript
        enabledToolDefinitions = enabledTools
        self.schema = schema
        self.generationOptions = generationOptions
        self.contextOptions = contextOptions
        self.metadata = metadata.mapValues(\.generatedContent)
    }
}
