// Stands in for the output of a language model of mlx-swift-lm 3.31.4.

import MLX

public struct LMOutput {
    /// `[B, L, vocabulary]`
    public let logits: MLXArray
    public let state: State?

    /// What a model wants to be given back with the next tokens.
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
