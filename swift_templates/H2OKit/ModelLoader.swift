import Foundation
import MLXLLM
import MLXLMCommon

/// Makes a model from its folder.
package protocol H2OModelLoader: Sendable {
    func load(
        from folder: URL, tokenizer: any TokenizerLoader
    ) async throws -> sending ModelContext
}

/// Loads the models of mlx-swift-lm.
package struct LLMLoader: H2OModelLoader {
    package init() {}

    package func load(
        from folder: URL, tokenizer: any TokenizerLoader
    ) async throws -> sending ModelContext {
        try await LLMModelFactory.shared.load(from: folder, using: tokenizer)
    }
}
