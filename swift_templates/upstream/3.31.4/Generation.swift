import MLX

/// How generation gets caches and reads prompts in mlx-swift-lm 3.31.4. The files for other
/// versions declare the same names.

extension LanguageModel {
    /// Makes the caches that the parameters ask for.
    func cachesForGeneration(parameters: GenerateParameters) throws -> [any KVCache] {
        guard let maker = parameters.kvCacheMaker else { return newCache(parameters: parameters) }
        try maker.check(parameters)
        return try maker.makeCaches(for: self)
    }

    /// The caches that the model makes without parameters.
    public func ownCaches() throws -> [any KVCache] { newCache(parameters: nil) }
}

extension GenerateParameters {
    /// Lets `ChatSession`, `generate` and `TokenIterator` get their caches from a maker.
    public mutating func makeCaches(by maker: any KVCacheMaker) { kvCacheMaker = maker }

    /// The name of a parameter that asks for caches of another kind; nil if there is none.
    public var otherCacheSetting: String? {
        if maxKVSize != nil { return "maxKVSize" }
        if kvBits != nil { return "kvBits" }
        return kvScheme == nil ? nil : "kvScheme"
    }

    /// The number of tokens of a prompt that are read at once. The last chunk may have fewer.
    public var promptChunk: Int {
        get { prefillStepSize }
        set { prefillStepSize = newValue }
    }
}

extension TokenIterator {
    /// Reads the prompt in chunks of `promptChunk` tokens and generates with these caches.
    public init(
        input: LMInput, model: any LanguageModel, cache: [any KVCache],
        processor: (any LogitProcessor)?, sampler: any LogitSampler, promptChunk: Int,
        maxTokens: Int?
    ) throws {
        try self.init(
            input: input, model: model, cache: cache, processor: processor, sampler: sampler,
            prefillStepSize: promptChunk, maxTokens: maxTokens)
    }
}

extension PromptAtOnceModel {
    public func prepare(
        _ input: LMInput, cache: [any KVCache], windowSize: Int?
    ) throws -> PrepareResult {
        .tokens(input.text)
    }
}
