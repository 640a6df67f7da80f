// A stand-in for the model factory of mlx-swift-lm. It has no models.

import Foundation
import MLXLMCommon

public final class LLMModelFactory: Sendable {
    public static let shared = LLMModelFactory()

    public func load(
        from directory: URL, using tokenizerLoader: any TokenizerLoader
    ) async throws -> sending ModelContext {
        throw NoModels()
    }

    public func loadContainer(
        from directory: URL, using tokenizerLoader: any TokenizerLoader
    ) async throws -> ModelContainer {
        throw NoModels()
    }
}

struct NoModels: LocalizedError {
    var errorDescription: String? {
        "The CPU stand-in for mlx-swift-lm has no models. Run `h2o-pack vendor` and build again."
    }
}
