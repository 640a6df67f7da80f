// huggingface/AnyLanguageModel of 2026-07-02: what docs/samples/BoundedLanguageModel.swift uses.

import Foundation

public protocol LanguageModel: Sendable {
    associatedtype UnavailableReason
    var availability: Availability<UnavailableReason> { get }
    func prewarm(for session: LanguageModelSession, promptPrefix: Prompt?)
    func respond<Content: Generable>(
        within session: LanguageModelSession, to prompt: Prompt, generating type: Content.Type,
        includeSchemaInPrompt: Bool, options: GenerationOptions
    ) async throws -> LanguageModelSession.Response<Content>
    func streamResponse<Content: Generable>(
        within session: LanguageModelSession, to prompt: Prompt, generating type: Content.Type,
        includeSchemaInPrompt: Bool, options: GenerationOptions
    ) -> sending LanguageModelSession.ResponseStream<Content>
}

public enum Availability<UnavailableReason> {
    case available
    case unavailable(UnavailableReason)
}

extension LanguageModel where UnavailableReason == Never {
    public var availability: Availability<UnavailableReason> { .available }
}

public protocol SendableMetatype: Sendable {}

public protocol ConvertibleFromGeneratedContent: SendableMetatype {
    init(_ content: GeneratedContent) throws
}

public protocol ConvertibleToGeneratedContent: PromptRepresentable {
    var generatedContent: GeneratedContent { get }
}
extension ConvertibleToGeneratedContent {
    public var promptRepresentation: Prompt { fatalError() }
}

public protocol Generable: ConvertibleFromGeneratedContent, ConvertibleToGeneratedContent {
    associatedtype PartiallyGenerated: ConvertibleFromGeneratedContent = Self
    static var generationSchema: GenerationSchema { get }
}

extension String: Generable {
    public static var generationSchema: GenerationSchema { fatalError() }
    public init(_ content: GeneratedContent) throws { fatalError() }
    public var generatedContent: GeneratedContent { fatalError() }
}

public struct GeneratedContent: Sendable, Equatable, Generable, Codable {
    public static var generationSchema: GenerationSchema { fatalError() }
    public init(_ content: GeneratedContent) throws { fatalError() }
    public init(_ value: some ConvertibleToGeneratedContent) { fatalError() }
    public init(json: String) throws { fatalError() }
    public var generatedContent: GeneratedContent { self }
    public var jsonString: String { fatalError() }
}

public struct GenerationSchema: Codable, Sendable {}

public struct GenerationOptions: Sendable {
    public struct SamplingMode: Sendable, Equatable {
        public static var greedy: SamplingMode { fatalError() }
    }

    public var sampling: SamplingMode?
    public var temperature: Double?
    public var maximumResponseTokens: Int?

    public init(
        sampling: SamplingMode? = nil, temperature: Double? = nil,
        maximumResponseTokens: Int? = nil
    ) {}
}

public protocol PromptRepresentable {
    var promptRepresentation: Prompt { get }
}

public struct Prompt: Sendable, CustomStringConvertible {
    public var description: String { fatalError() }
}

public protocol Tool<Arguments, Output>: Sendable {
    associatedtype Output: PromptRepresentable
    associatedtype Arguments: ConvertibleFromGeneratedContent
    var name: String { get }
    var description: String { get }
    var parameters: GenerationSchema { get }
    func call(arguments: Arguments) async throws -> Output
}

public struct Transcript: Sendable, RandomAccessCollection {
    public enum Entry: Sendable {
        case instructions(Instructions)
        case prompt(Prompt)
        case toolCalls(ToolCalls)
        case toolOutput(ToolOutput)
        case response(Response)
    }

    public enum Segment: Sendable {
        case text(TextSegment)
        case structure(StructuredSegment)
        case image(ImageSegment)
    }

    public struct Instructions: Sendable { public var segments: [Segment] }
    public struct Prompt: Sendable { public var segments: [Segment] }
    public struct Response: Sendable { public var segments: [Segment] }
    public struct TextSegment: Sendable { public var content: String }
    public struct StructuredSegment: Sendable { public var content: GeneratedContent }
    public struct ToolCalls: Sendable {}
    public struct ToolOutput: Sendable {}
    public struct ImageSegment: Sendable {}

    public subscript(index: Int) -> Entry { fatalError() }
    public var startIndex: Int { fatalError() }
    public var endIndex: Int { fatalError() }
}

public final class LanguageModelSession: @unchecked Sendable {
    public var transcript: Transcript { fatalError() }
    public let tools: [any Tool]

    public init(model: any LanguageModel, tools: [any Tool] = [], instructions: String) {
        fatalError()
    }

    @discardableResult
    public nonisolated func respond(
        to prompt: String, options: GenerationOptions = GenerationOptions()
    ) async throws -> Response<String> { fatalError() }

    public struct Response<Content: Generable & Sendable>: Sendable {
        public let content: Content
        public init(
            content: Content, rawContent: GeneratedContent,
            transcriptEntries: ArraySlice<Transcript.Entry>
        ) { fatalError() }
    }

    public struct ResponseStream<Content: Generable>: Sendable
    where Content.PartiallyGenerated: Sendable {
        public init(stream: AsyncThrowingStream<Snapshot, any Error>) {}

        public struct Snapshot: Sendable {
            public init(content: Content.PartiallyGenerated, rawContent: GeneratedContent) {}
        }
    }
}
