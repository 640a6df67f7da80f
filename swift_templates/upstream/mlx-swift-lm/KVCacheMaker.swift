import Foundation
import MLX
import MLXNN

/// Makes the caches of a model in place of ``LanguageModel/newCache(parameters:)``, for
/// ``GenerateParameters/makeCaches(by:)``.
public protocol KVCacheMaker: Hashable, Sendable {
    /// Refuses parameters that contradict such caches.
    func check(_ parameters: GenerateParameters) throws

    /// One cache for each that the model itself would make.
    ///
    /// - Throws: when the model does not allow such caches
    func makeCaches(for model: any LanguageModel) throws -> [any KVCache]
}

/// Speculative decoding takes rejected tokens back, which a cache that decides what it keeps
/// can do only until it evicts.
public struct SpeculationRefused: LocalizedError {
    let cache: String

    public var errorDescription: String? {
        "Speculative decoding takes tokens back, and \(cache) cannot give back what it has "
            + "evicted. Generate without a draft model, or without H2O."
    }
}

func refuseSpeculation(with caches: [any KVCache]) throws {
    if let cache = caches.lazy.compactMap(\.routed).first {
        throw SpeculationRefused(cache: String(describing: type(of: cache)))
    }
}

extension KVCache {
    /// The cache that computes attention itself, if this is or holds one.
    var routed: (any RoutedAttentionCache)? {
        guard let list = self as? CacheList else { return self as? any RoutedAttentionCache }
        var first: (any RoutedAttentionCache)?
        list.mapChildren { child in
            first = first ?? child.routed
            return child
        }
        return first
    }

    /// What to evaluate with each token. Who takes the `state` of a routed cache may keep it,
    /// so that the cache's next write copies all rows.
    var arraysOfStep: [MLXArray] { routed == nil ? state : innerState() }
}

/// A model that leaves its whole prompt to the token iterator.
public protocol PromptAtOnceModel: LanguageModel {}
