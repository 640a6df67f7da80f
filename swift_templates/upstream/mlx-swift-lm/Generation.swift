import MLX

/// A maker of caches as a part of a ``KVCacheConfiguration``, which a session compares to notice a
/// change.
package struct KVCacheMaking: Hashable, Sendable {
    package let maker: any KVCacheMaker

    package static func == (one: Self, other: Self) -> Bool {
        AnyHashable(one.maker) == AnyHashable(other.maker)
    }

    package func hash(into hasher: inout Hasher) { maker.hash(into: &hasher) }
}

extension KVCacheConfiguration.Strategy {
    var maker: (any KVCacheMaker)? {
        if case .made(let making) = storage { making.maker } else { nil }
    }
}

extension LanguageModel {
    /// Makes the caches that the parameters ask for.
    func cachesForGeneration(parameters: GenerateParameters?) throws -> [any KVCache] {
        guard let parameters, let maker = parameters.kvCache?.strategy.maker else {
            return try newCache(parameters: parameters)
        }
        try maker.check(parameters)
        return try maker.makeCaches(for: self)
    }

    /// The caches that the model makes without parameters.
    public func ownCaches() throws -> [any KVCache] { try newCache(parameters: nil) }
}

extension GenerateParameters {
    /// Lets `ChatSession`, `generate` and `TokenIterator` get their caches from a maker.
    public mutating func makeCaches(by maker: any KVCacheMaker) {
        kvCache = KVCacheConfiguration(strategy: .made(by: maker))
    }

    /// The name of a parameter that asks for caches of another kind; nil if there is none.
    public var otherCacheSetting: String? {
        if maxKVSize != nil { return "maxKVSize" }
        if kvBits != nil { return "kvBits" }
        if kvScheme != nil { return "kvScheme" }
        return kvCache?.capacity == nil ? nil : "kvCache.capacity"
    }

    /// The number of tokens of a prompt that are read at once. The last chunk may have fewer.
    public var promptChunk: Int {
        get { prefill.resolvedStepSize() }
        set {
            prefill.stepSize = newValue
            prefill.chunking = .remainder
        }
    }
}

extension TokenIterator {
    /// Reads the prompt in chunks of `promptChunk` tokens and generates with these caches. A
    /// prompt that fits into one chunk is read at once, even by a model with its own chunk size.
    public init(
        input: LMInput, model: any LanguageModel, cache: [any KVCache],
        processor: (any LogitProcessor)?, sampler: any LogitSampler, promptChunk: Int,
        maxTokens: Int?
    ) throws {
        let fits = input.text.tokens.size <= promptChunk
        try self.init(
            input: input, model: model, cache: cache, processor: processor, sampler: sampler,
            prefill: PrefillParameters(
                stepSize: promptChunk, chunking: fits ? .unchunked : .remainder),
            maxTokens: maxTokens)
    }
}

extension PromptAtOnceModel {
    public func prepare(
        _ input: LMInput, cache: [any KVCache], state: LMOutput.State?,
        prefill: PrefillParameters
    ) throws -> PrepareResult {
        .tokens(input.text)
    }
}
