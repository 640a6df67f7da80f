/// Why a model does not respond; of Apple's nine cases, those that depend on the request.
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
