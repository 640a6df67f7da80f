/// What a person asks.
public struct Prompt: Sendable, PromptRepresentable {
    let segments: [Transcript.Segment]

    init(segments: [Transcript.Segment]) { self.segments = segments }

    public init(_ content: some PromptRepresentable) { self = content.promptRepresentation }

    public var promptRepresentation: Prompt { self }
}

public protocol PromptRepresentable {
    var promptRepresentation: Prompt { get }
}

/// What a model may call.
public protocol Tool<Arguments, Output>: Sendable {
    associatedtype Arguments: ConvertibleFromGeneratedContent
    associatedtype Output: PromptRepresentable

    var name: String { get }
    var description: String { get }
    var parameters: GenerationSchema { get }

    func call(arguments: Arguments) async throws -> Output
}

extension Tool {
    public var name: String { "\(Self.self)" }
}

extension Tool where Arguments: Generable {
    public var parameters: GenerationSchema { Arguments.generationSchema }
}
