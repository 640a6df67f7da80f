import Foundation

extension Transcript {
    public enum Segment: Sendable, Equatable, Identifiable {
        case text(TextSegment)
        case structure(StructuredSegment)
        case attachment(AttachmentSegment)

        public var id: String {
            switch self {
            case .text(let segment): segment.id
            case .structure(let segment): segment.id
            case .attachment(let segment): segment.id
            }
        }
    }

    public struct TextSegment: Sendable, Equatable, Identifiable {
        public var id: String
        public var content: String

        public init(id: String = UUID().uuidString, content: String) {
            self.id = id
            self.content = content
        }
    }

    public struct StructuredSegment: Sendable, Equatable, Identifiable {
        public var id: String
        public var schemaName: String
        public var content: GeneratedContent

        public init(
            id: String = UUID().uuidString, schemaName: String, content: GeneratedContent
        ) {
            self.id = id
            self.schemaName = schemaName
            self.content = content
        }
    }

    public struct AttachmentSegment: Sendable, Equatable, Identifiable {
        public var id: String
        public var content: Attachment
        public var label: String?

        public init(
            id: String = UUID().uuidString, content: Attachment, label: String? = nil
        ) {
            self.id = id
            self.content = content
            self.label = label
        }
    }

    public enum Attachment: Sendable, Equatable {
        case image(ImageAttachment)
    }

    /// Apple makes it of an image, too.
    public struct ImageAttachment: Sendable, Equatable {
        public let url: URL?

        public init(imageURL: URL) { url = imageURL }
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
