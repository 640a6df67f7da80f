// Stands in for the generation of mlx-swift-lm 3.31.4, greedy, with the hook by which its
// parameters make caches.

import MLX

public struct GenerateParameters: Sendable {
    public var maxTokens: Int?
    public var maxKVSize: Int?
    public var kvBits: Int?
    public var kvGroupSize: Int
    public var kvScheme: String?

    /// Makes the caches where ``kvScheme`` is its scheme.
    public var kvCacheMaker: (any KVCacheMaker)?

    public var temperature: Float
    public var prefillStepSize: Int

    public init(
        maxTokens: Int? = nil, maxKVSize: Int? = nil, kvBits: Int? = nil, kvGroupSize: Int = 64,
        kvScheme: String? = nil, temperature: Float = 0.6, prefillStepSize: Int = 512
    ) {
        self.maxTokens = maxTokens
        self.maxKVSize = maxKVSize
        self.kvBits = kvBits
        self.kvGroupSize = kvGroupSize
        self.kvScheme = kvScheme
        self.temperature = temperature
        self.prefillStepSize = prefillStepSize
    }
}

public struct TokenIterator: Sequence, IteratorProtocol {
    let model: any LanguageModel
    var cache: [KVCache]
    var upcoming: Int32
    var tokenCount = 0
    let maxTokens: Int?

    public init(
        input: LMInput, model: any LanguageModel, cache: [KVCache]? = nil,
        parameters: GenerateParameters
    ) throws {
        self.model = model
        self.cache = try cache ?? model.cachesForGeneration(parameters: parameters)
        maxTokens = parameters.maxTokens
        switch try model.prepare(input, cache: self.cache, windowSize: nil) {
        case .tokens(let text):
            upcoming = Self.likeliest(after: text.tokens.asArray(Int32.self), model, self.cache)
        }
    }

    public mutating func next() -> Int? {
        if let maxTokens, tokenCount >= maxTokens { return nil }
        let token = upcoming
        upcoming = Self.likeliest(after: [token], model, cache)
        tokenCount += 1
        return Int(token)
    }

    private static func likeliest(
        after tokens: [Int32], _ model: any LanguageModel, _ cache: [KVCache]
    ) -> Int32 {
        let logits = model(MLXArray(tokens, [1, tokens.count]), cache: cache)
        let last = logits.asArray(Float.self).suffix(logits.dim(2))
        let best = last.indices.max { last[$0] < last[$1] } ?? last.startIndex
        return Int32(best - last.startIndex)
    }
}
