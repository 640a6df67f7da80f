import Foundation
import MLX
import MLXNN

/// Makes the caches of a model instead of ``LanguageModel/newCache(parameters:)``, for
/// ``KVCacheConfiguration/Strategy/made(by:)``.
public protocol KVCacheMaker: Hashable, Sendable {
    /// Refuses parameters that contradict these caches.
    func check(_ parameters: GenerateParameters) throws

    /// Makes one cache for each cache of the model.
    ///
    /// - Throws: an error if the model cannot use these caches
    func makeCaches(for model: any LanguageModel) throws -> [any KVCache]
}

/// The error if speculative decoding is used with an evicting cache. Speculative decoding removes
/// rejected tokens, which such a cache can do only before its first eviction.
public struct SpeculationRefused: LocalizedError {
    let cache: String

    public var errorDescription: String? {
        "Speculative decoding removes tokens from the cache, and \(cache) cannot restore the "
            + "tokens that it has evicted for them. Generate without a draft model, or without H2O."
    }
}

func refuseSpeculation(with caches: [any KVCache]) throws {
    if let cache = caches.lazy.compactMap(\.routed).first {
        throw SpeculationRefused(cache: String(describing: type(of: cache)))
    }
}

extension KVCache {
    /// The cache that computes attention itself: this cache, or one in this list.
    var routed: (any RoutedAttentionCache)? {
        guard let list = self as? CacheList else { return self as? any RoutedAttentionCache }
        var first: (any RoutedAttentionCache)?
        list.mapChildren { child in
            first = first ?? child.routed
            return child
        }
        return first
    }

    /// The arrays to evaluate with each token. For a routed cache these are not its `state`, because
    /// a caller might keep the rows in it, and the cache's next write would then copy all rows.
    var arraysOfStep: [MLXArray] { routed == nil ? state : innerState() }
}

/// A model that lets the token iterator read the whole prompt at once.
public protocol PromptAtOnceModel: LanguageModel {}
