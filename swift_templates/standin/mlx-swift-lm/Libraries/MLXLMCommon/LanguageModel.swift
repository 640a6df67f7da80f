// A stand-in for the language model of mlx-swift-lm: the methods that generation calls.

import MLX
import MLXNN

public struct LMInput {
    public let text: Text

    public struct Text {
        /// `[L]`; when passed to the model, `[B, L]`.
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

public protocol LanguageModel: Module {
    /// Reads a prompt in chunks, except for the tokens that it returns.
    func prepare(
        _ input: LMInput, cache: [KVCache], state: LMOutput.State?, prefill: PrefillParameters
    ) throws -> PrepareResult

    func callAsFunction(
        _ input: LMInput.Text, cache: [KVCache]?, state: LMOutput.State?
    ) -> LMOutput

    /// The logits `[B, L, vocabulary]` of tokens `[B, L]`.
    func callAsFunction(_ inputs: MLXArray, cache: [KVCache]?) -> MLXArray

    func newCache(parameters: GenerateParameters?) throws -> [KVCache]
}

/// How a prompt is divided into chunks.
public struct PrefillParameters: Sendable {
    public init() {}
}

public struct LMOutput {
    /// `[B, L, vocabulary]`
    public let logits: MLXArray
    public let state: State?

    /// State that the model receives again with the next tokens.
    public struct State {
        public init() {}
    }

    public init(logits: MLXArray, state: State? = nil) {
        self.logits = logits
        self.state = state
    }
}

extension LanguageModel {
    public func callAsFunction(
        _ input: LMInput.Text, cache: [KVCache]?, state: LMOutput.State?
    ) -> LMOutput {
        LMOutput(logits: self(input.tokens, cache: cache))
    }
}
