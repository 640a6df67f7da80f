// Stands in for the language model of mlx-swift-lm 3.31.4: what generation asks of one.

import MLX
import MLXNN

public protocol BaseLanguageModel: Module {}

public struct LMInput {
    public let text: Text

    public struct Text {
        /// `[L]`, or `[B, L]` where the model gets them.
        public let tokens: MLXArray

        public init(tokens: MLXArray) {
            self.tokens = tokens
        }
    }

    public init(tokens: MLXArray) {
        text = Text(tokens: tokens)
    }
}

public enum PrepareResult {
    /// Tokens that the caller still has to give to the model.
    case tokens(LMInput.Text)
}

public protocol LanguageModel: BaseLanguageModel {
    func prepare(_ input: LMInput, cache: [KVCache], windowSize: Int?) throws -> PrepareResult

    /// The logits `[B, L, vocabulary]` of tokens `[B, L]`.
    func callAsFunction(_ inputs: MLXArray, cache: [KVCache]?) -> MLXArray

    func newCache(parameters: GenerateParameters?) -> [KVCache]
}
