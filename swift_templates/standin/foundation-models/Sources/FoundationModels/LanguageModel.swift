import Foundation

/// A model that an app passes to a session. The model's executor generates the responses.
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
    public var transcript: Transcript
    public var enabledToolDefinitions: [Transcript.ToolDefinition]
    public var schema: GenerationSchema?
    public var generationOptions: GenerationOptions
    public var contextOptions: ContextOptions

    public init(
        id: UUID, transcript: Transcript, enabledTools: [Transcript.ToolDefinition],
        schema: GenerationSchema?, generationOptions: GenerationOptions,
        contextOptions: ContextOptions,
        metadata: [String: any ConvertibleToGeneratedContent & Sendable]
    ) {
        self.transcript = transcript
        enabledToolDefinitions = enabledTools
        self.schema = schema
        self.generationOptions = generationOptions
        self.contextOptions = contextOptions
    }
}

/// How tokens are chosen.
public struct GenerationOptions: Sendable, Equatable {
    public var samplingMode: SamplingMode?
    public var temperature: Double?
    public var maximumResponseTokens: Int?
    public var toolCallingMode: ToolCallingMode?

    public init(
        samplingMode: SamplingMode? = nil, temperature: Double? = nil,
        maximumResponseTokens: Int? = nil, toolCallingMode: ToolCallingMode? = nil
    ) {
        self.samplingMode = samplingMode
        self.temperature = temperature
        self.maximumResponseTokens = maximumResponseTokens
        self.toolCallingMode = toolCallingMode
    }

    public struct SamplingMode: Sendable, Equatable {
        public let kind: Kind

        public enum Kind: Sendable, Equatable {
            case greedy
            case randomTopK(Int, seed: UInt64?)
            case randomProbabilityThreshold(Double, seed: UInt64?)
        }

        public static var greedy: SamplingMode { SamplingMode(kind: .greedy) }

        public static func random(top k: Int, seed: UInt64? = nil) -> SamplingMode {
            SamplingMode(kind: .randomTopK(k, seed: seed))
        }

        public static func random(
            probabilityThreshold: Double, seed: UInt64? = nil
        ) -> SamplingMode {
            SamplingMode(kind: .randomProbabilityThreshold(probabilityThreshold, seed: seed))
        }
    }

    public struct ToolCallingMode: Sendable, Equatable {
        public let kind: Kind

        public enum Kind: Sendable, Equatable {
            case allowed
            case required
            case disallowed
        }

        public static var allowed: ToolCallingMode { ToolCallingMode(kind: .allowed) }
        public static var required: ToolCallingMode { ToolCallingMode(kind: .required) }
        public static var disallowed: ToolCallingMode { ToolCallingMode(kind: .disallowed) }
    }
}

/// How the model is prompted.
public struct ContextOptions: Sendable, Equatable {
    public var includeSchemaInPrompt: Bool?
    public var reasoningLevel: ReasoningLevel?

    public init(includeSchemaInPrompt: Bool? = nil, reasoningLevel: ReasoningLevel? = nil) {
        self.includeSchemaInPrompt = includeSchemaInPrompt
        self.reasoningLevel = reasoningLevel
    }

    public enum ReasoningLevel: Sendable, Equatable {
        case light
        case moderate
        case deep
        case custom(String)
    }
}

/// Why a model does not respond. The stand-in has only the cases that depend on the request.
public enum LanguageModelError: Error, Sendable {
    case contextSizeExceeded(ContextSizeExceeded)
    case unsupportedCapability(UnsupportedCapability)
    case unsupportedTranscriptContent(UnsupportedTranscriptContent)
    case unsupportedGenerationGuide(UnsupportedGenerationGuide)

    public struct ContextSizeExceeded: Sendable {
        public var contextSize: Int
        public var tokenCount: Int
        public var debugDescription: String

        public init(contextSize: Int, tokenCount: Int, debugDescription: String) {
            self.contextSize = contextSize
            self.tokenCount = tokenCount
            self.debugDescription = debugDescription
        }
    }

    public struct UnsupportedCapability: Sendable {
        public var capability: LanguageModelCapabilities.Capability
        public var debugDescription: String

        public init(
            capability: LanguageModelCapabilities.Capability, debugDescription: String
        ) {
            self.capability = capability
            self.debugDescription = debugDescription
        }
    }

    public struct UnsupportedTranscriptContent: Sendable {
        public var unsupportedContent: [Transcript.Entry]
        public var debugDescription: String

        public init(unsupportedContent: [Transcript.Entry], debugDescription: String) {
            self.unsupportedContent = unsupportedContent
            self.debugDescription = debugDescription
        }
    }

    public struct UnsupportedGenerationGuide: Sendable {
        public var schemaName: String?
        public var debugDescription: String

        public init(schemaName: String?, debugDescription: String) {
            self.schemaName = schemaName
            self.debugDescription = debugDescription
        }
    }
}

/// The channel to which an executor sends its response. Only the session reads the events.
public struct LanguageModelExecutorGenerationChannel: Sendable, AsyncSequence {
    private let events: AsyncStream<Event>
    private let continuation: AsyncStream<Event>.Continuation

    public init() { (events, continuation) = AsyncStream.makeStream() }

    public func send(_ event: Event) async { continuation.yield(event) }

    public func makeAsyncIterator() -> AsyncStream<Event>.Iterator {
        events.makeAsyncIterator()
    }

    func finish() { continuation.finish() }

    public struct Event: Sendable {
        let entryID: String
        let content: Content

        enum Content: Sendable {
            case response(Response.Action)
            case reasoning(Reasoning.Action)
            case toolCalls(ToolCalls.Action)
        }

        public static func response(entryID: String, action: Response.Action) -> Event {
            Event(entryID: entryID, content: .response(action))
        }

        public static func reasoning(entryID: String, action: Reasoning.Action) -> Event {
            Event(entryID: entryID, content: .reasoning(action))
        }

        public static func toolCalls(entryID: String, action: ToolCalls.Action) -> Event {
            Event(entryID: entryID, content: .toolCalls(action))
        }
    }

    public enum Response {
        public struct Action: Sendable {
            let kind: Kind

            enum Kind: Sendable {
                case appendText(String)
                case updateUsage(Usage)
            }

            public static func appendText(_ text: String, tokenCount: Int) -> Action {
                Action(kind: .appendText(text))
            }

            public static func updateUsage(
                input: Usage.Input, output: Usage.Output
            ) -> Action {
                Action(kind: .updateUsage(Usage(input: input, output: output)))
            }
        }
    }

    public enum Reasoning {
        public struct Action: Sendable {
            let text: String

            public static func appendText(_ text: String, tokenCount: Int) -> Action {
                Action(text: text)
            }
        }
    }

    public enum ToolCalls {
        public struct Action: Sendable {
            let kind: Kind

            enum Kind: Sendable {
                case call(Transcript.ToolCall)
                case updateUsage(Usage)
            }

            public static func toolCall(
                id: String, name: String, action: ToolCall.Action
            ) -> Action {
                let arguments = try? GeneratedContent(json: action.arguments)
                return Action(
                    kind: .call(
                        Transcript.ToolCall(
                            id: id, toolName: name,
                            arguments: arguments ?? GeneratedContent(.null))))
            }

            public static func updateUsage(
                input: Usage.Input, output: Usage.Output
            ) -> Action {
                Action(kind: .updateUsage(Usage(input: input, output: output)))
            }
        }

        public enum ToolCall {
            public struct Action: Sendable {
                let arguments: String

                public static func appendArguments(
                    _ content: String, tokenCount: Int
                ) -> Action {
                    Action(arguments: content)
                }
            }
        }
    }

    public struct Usage: Sendable {
        public var input: Input
        public var output: Output

        public struct Input: Sendable {
            public var totalTokenCount: Int
            public var cachedTokenCount: Int

            public init(totalTokenCount: Int, cachedTokenCount: Int) {
                self.totalTokenCount = totalTokenCount
                self.cachedTokenCount = cachedTokenCount
            }
        }

        public struct Output: Sendable {
            public var totalTokenCount: Int
            public var reasoningTokenCount: Int

            public init(totalTokenCount: Int, reasoningTokenCount: Int) {
                self.totalTokenCount = totalTokenCount
                self.reasoningTokenCount = reasoningTokenCount
            }
        }
    }
}
