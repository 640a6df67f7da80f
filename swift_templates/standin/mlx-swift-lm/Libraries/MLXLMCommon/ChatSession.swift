// Stands in for the chat session of mlx-swift-lm 3.31.4, so that what uses it compiles.

/// A loaded model, which the stand-in's factory never gives out.
public struct ModelContainer: Sendable {}

public final class ChatSession {
    public init(
        _ model: ModelContainer, instructions: String? = nil,
        generateParameters: GenerateParameters = GenerateParameters()
    ) {}

    public func respond(to prompt: String) async throws -> String {
        fatalError("the stand-in has no model to talk to")
    }
}
