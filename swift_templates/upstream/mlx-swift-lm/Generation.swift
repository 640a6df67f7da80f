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
}

extension GenerateParameters {
    /// The name of a parameter that asks for caches of another kind; nil if there is none.
    public var otherCacheSetting: String? {
        if maxKVSize != nil { return "maxKVSize" }
        if kvBits != nil { return "kvBits" }
        if kvScheme != nil { return "kvScheme" }
        return kvCache?.capacity == nil ? nil : "kvCache.capacity"
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
