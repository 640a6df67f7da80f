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
