import Foundation

/// The entries of a session, in order.
public struct Transcript: Sendable, Equatable, RandomAccessCollection {
    var entries: [Entry]

    public init(entries: some Sequence<Entry> = []) { self.entries = Array(entries) }

    public var startIndex: Int { entries.startIndex }
    public var endIndex: Int { entries.endIndex }
    public subscript(position: Int) -> Entry { entries[position] }

    public enum Entry: Sendable, Equatable {
        case instructions(Instructions)
        case prompt(Prompt)
        case toolCalls(ToolCalls)
        case toolOutput(ToolOutput)
        case response(Response)
        case reasoning(Reasoning)
    }

    public struct Instructions: Sendable, Equatable {
        public var segments: [Segment]
        public var toolDefinitions: [ToolDefinition]

        public init(segments: [Segment], toolDefinitions: [ToolDefinition]) {
            self.segments = segments
            self.toolDefinitions = toolDefinitions
        }
    }

    public struct Prompt: Sendable, Equatable {
        public var segments: [Segment]
        public var options: GenerationOptions
        public var responseFormat: ResponseFormat?
        public var contextOptions: ContextOptions

        public init(
            segments: [Segment], options: GenerationOptions = GenerationOptions(),
            responseFormat: ResponseFormat? = nil,
            contextOptions: ContextOptions = ContextOptions()
        ) {
            self.segments = segments
            self.options = options
            self.responseFormat = responseFormat
            self.contextOptions = contextOptions
        }
    }

    public struct Response: Sendable, Equatable {
        public var id: String
        public var segments: [Segment]

        public init(id: String = UUID().uuidString, segments: [Segment]) {
            self.id = id
            self.segments = segments
        }
    }

    public struct Reasoning: Sendable, Equatable {
        public var segments: [Segment]

        public init(segments: [Segment]) { self.segments = segments }
    }

    public struct ToolCalls: Sendable, Equatable, RandomAccessCollection {
        var calls: [ToolCall]

        public init(_ calls: some Sequence<ToolCall>) { self.calls = Array(calls) }

        public var startIndex: Int { calls.startIndex }
        public var endIndex: Int { calls.endIndex }
        public subscript(position: Int) -> ToolCall { calls[position] }
    }

    public struct ToolCall: Sendable, Equatable {
        public var id: String
        public var toolName: String
        public var arguments: GeneratedContent

        public init(id: String, toolName: String, arguments: GeneratedContent) {
            self.id = id
            self.toolName = toolName
            self.arguments = arguments
        }
    }

    public struct ToolOutput: Sendable, Equatable {
        /// The identifier of the tool call that this output answers.
        public var id: String
        public var toolName: String
        public var segments: [Segment]

        public init(id: String, toolName: String, segments: [Segment]) {
            self.id = id
            self.toolName = toolName
            self.segments = segments
        }
    }
}

extension Transcript {
    public enum Segment: Sendable, Equatable {
        case text(TextSegment)
        case structure(StructuredSegment)
        case attachment(AttachmentSegment)

        static func text(_ text: String) -> Segment { .text(TextSegment(content: text)) }
    }

    public struct TextSegment: Sendable, Equatable {
        public var content: String

        public init(content: String) { self.content = content }
    }

    public struct StructuredSegment: Sendable, Equatable {
        public var schemaName: String
        public var content: GeneratedContent

        public init(schemaName: String, content: GeneratedContent) {
            self.schemaName = schemaName
            self.content = content
        }
    }

    public struct AttachmentSegment: Sendable, Equatable {
        public var content: Attachment

        public init(content: Attachment) { self.content = content }
    }

    public enum Attachment: Sendable, Equatable {
        case image(ImageAttachment)
    }

    /// An image. Apple's type can also be created from an image object.
    public struct ImageAttachment: Sendable, Equatable {
        public init(imageURL: URL) {}
    }

    public struct ToolDefinition: Sendable, Equatable {
        public var name: String
        public var description: String
        public var parameters: GenerationSchema

        public init(name: String, description: String, parameters: GenerationSchema) {
            self.name = name
            self.description = description
            self.parameters = parameters
        }
    }

    public struct ResponseFormat: Sendable, Equatable {
        public let kind: Kind

        public enum Kind: Sendable, Equatable {
            case schema(GenerationSchema)
        }

        public init(schema: GenerationSchema) { kind = .schema(schema) }
    }
}
