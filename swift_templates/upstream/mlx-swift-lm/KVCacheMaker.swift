import Foundation
import MLX

/// Makes the caches of a model in place of ``LanguageModel/newCache(parameters:)``.
///
/// Given as ``GenerateParameters/kvCacheMaker``; asked where
/// ``GenerateParameters/kvScheme`` is its ``scheme``.
public protocol KVCacheMaker: Sendable {
    /// The scheme that it is for.
    var scheme: String { get }

    /// One cache for each that the model itself would make.
    ///
    /// - Throws: when the model or the parameters do not allow such caches
    func makeCaches(
        for model: any LanguageModel, parameters: GenerateParameters
    ) throws -> [any KVCache]
}

/// A scheme that nobody can make caches for.
public struct KVCacheMakerMissing: LocalizedError {
    let scheme: String

    public var errorDescription: String? {
        "kvScheme is \"\(scheme)\", but kvCacheMaker makes no such caches. With H2OKit, "
            + "parameters.useH2O(_:) sets both."
    }
}

extension LanguageModel {
    /// The caches that the parameters ask for.
    func cachesForGeneration(parameters: GenerateParameters) throws -> [any KVCache] {
        if let maker = parameters.kvCacheMaker, maker.scheme == parameters.kvScheme {
            return try maker.makeCaches(for: self, parameters: parameters)
        }
        if let scheme = parameters.kvScheme, scheme == "h2o" {
            throw KVCacheMakerMissing(scheme: scheme)
        }
        return newCache(parameters: parameters)
    }
}

/// Whether all tokens can be taken back from the caches, however many will come. A cache
/// that decides what it keeps can do so only until it evicts.
func canAlwaysTrim(_ cache: [any KVCache]) -> Bool {
    canTrimPromptCache(cache) && !cache.contains { $0 is RoutedAttentionCache }
}
