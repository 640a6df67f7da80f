// A stand-in for the generation of mlx-swift-lm. It generates greedily, and has the edits by which
// the parameters make the caches.

import MLX

public struct GenerateParameters: Sendable {
    public var maxTokens: Int?
    public var maxKVSize: Int?
    public var kvBits: Int?
    public var kvScheme: String?
    public var kvCache: KVCacheConfiguration?
    public var prefill = PrefillParameters()

    public var temperature: Float
    public var topP: Float = 1
    public var topK = 0
    public var minP: Float = 0
    public var repetitionPenalty: Float?
    public var seed: UInt64?

    public init(maxTokens: Int? = nil, temperature: Float = 0.6) {
        self.maxTokens = maxTokens
        self.temperature = temperature
    }
}

/// How the caches of a generation store keys and values.
public struct KVCacheConfiguration: Sendable, Hashable {
    public var capacity: Capacity?
    public var strategy: Strategy

    public init(capacity: Capacity? = nil, strategy: Strategy) {
        self.capacity = capacity
        self.strategy = strategy
    }

    public struct Capacity: Sendable, Hashable {
        public let maxTokens: Int
    }

    public struct Strategy: Sendable, Hashable {
        enum Storage: Sendable, Hashable {
            case made(KVCacheMaking)
        }

        let storage: Storage

        /// Caches that `maker` makes instead of the model.
        public static func made(by maker: any KVCacheMaker) -> Strategy {
            Strategy(storage: .made(KVCacheMaking(maker: maker)))
        }
    }
}

extension GenerateParameters {
    public func sampler() -> any LogitSampler { ArgMaxSampler() }

    public func processor() -> (any LogitProcessor)? { nil }
}

/// Changes logits before a token is chosen.
public protocol LogitProcessor {
    mutating func prompt(_ prompt: MLXArray)
    func process(logits: MLXArray) -> MLXArray
    mutating func didSample(token: MLXArray)
}

/// Chooses a token `[1]` by its logits `[1, vocabulary]`.
public protocol LogitSampler {
    func sample(logits: MLXArray) -> MLXArray
}

/// Chooses the likeliest token; if several are equally likely, the first.
public struct ArgMaxSampler: LogitSampler {
    public init() {}

    public func sample(logits: MLXArray) -> MLXArray {
        let values = logits.asType(.float32).asArray(Float.self)
        var best = 0
        for (token, value) in values.enumerated() where value > values[best] { best = token }
        return MLXArray([Int32(best)], [1])
    }
}

public struct TokenIterator: Sequence, IteratorProtocol {
    let model: any LanguageModel
    var cache: [KVCache]
    var processor: (any LogitProcessor)?
    let sampler: any LogitSampler
    var upcoming: MLXArray
    var tokenCount = 0
    let maxTokens: Int?

    public init(
        input: LMInput, model: any LanguageModel, cache: [KVCache]? = nil,
        parameters: GenerateParameters
    ) throws {
        try self.init(
            input: input, model: model,
            cache: cache ?? model.cachesForGeneration(parameters: parameters), processor: nil,
            sampler: ArgMaxSampler(), prefill: parameters.prefill, maxTokens: parameters.maxTokens)
    }

    public init(
        input: LMInput, model: any LanguageModel, cache: [KVCache]? = nil,
        processor: (any LogitProcessor)?, sampler: any LogitSampler,
        prefill: PrefillParameters = PrefillParameters(), maxTokens: Int? = nil
    ) throws {
        self.model = model
        self.cache = try cache ?? model.newCache(parameters: nil)
        self.processor = processor
        self.sampler = sampler
        self.maxTokens = maxTokens
        upcoming = input.text.tokens
        self.processor?.prompt(upcoming)
        switch try model.prepare(input, cache: self.cache, state: nil, prefill: prefill) {
        case .tokens(let text):
            upcoming = step(after: text.tokens)
        }
    }

    public mutating func next() -> Int? {
        if let maxTokens, tokenCount >= maxTokens { return nil }
        let token = upcoming
        upcoming = step(after: token)
        // As upstream does, evaluates the caches too.
        eval([upcoming] + cache.flatMap(\.arraysOfStep))
        tokenCount += 1
        return token.asArray(Int32.self).first.map(Int.init)
    }

    private mutating func step(after tokens: MLXArray) -> MLXArray {
        let ids = tokens.asArray(Int32.self)
        let logits = model(MLXArray(ids, [1, ids.count]), cache: cache)
        let vocabulary = logits.dim(2)
        let last = MLXArray(Array(logits.asArray(Float.self).suffix(vocabulary)), [1, vocabulary])
        let token = sampler.sample(logits: processor?.process(logits: last) ?? last)
        processor?.didSample(token: token)
        return token
    }
}
