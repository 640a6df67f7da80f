import H2OKit
import MLX
import MLXLMCommon
import MLXNN

/// A model whose tokens are their own queries, keys and values, with the caches that it is
/// told to make. Its logits are what its last layer attends to.
class TinyModel: Module, PromptAtOnceModel {
    private let make: () -> [any KVCache]

    /// The caches of the last call.
    private(set) var given = [any KVCache]()

    init(_ make: @escaping () -> [any KVCache]) {
        self.make = make
        super.init()
    }

    func newCache(parameters: GenerateParameters?) -> [any KVCache] { make() }

    func callAsFunction(_ inputs: MLXArray, cache: [any KVCache]?) -> MLXArray {
        given = cache ?? []
        let ids = inputs.asArray(Int32.self)
        let tokens = Tokens(ids.count, seed: UInt64(ids[0]) + UInt64(given.first?.offset ?? 0))
        let outputs = given.map { cache in
            attentionWithCacheUpdate(
                queries: tokens.queries, keys: tokens.keys, values: tokens.values, cache: cache,
                scale: Heads.scale, mask: ids.count > 1 ? .causal : .none
            ).asArray(Float.self)
        }
        let firstHead = outputs.last?.prefix(ids.count * Heads.valueDim) ?? []
        return MLXArray(Array(firstHead), [1, ids.count, Heads.valueDim])
    }
}

/// A model by the name of one that cannot work with rows missing.
final class Gemma2Model: TinyModel {}

/// A model by the name of one that cannot where it has layers with a sliding window.
final class Exaone4Model: TinyModel {}

/// A model by the name of one that cannot where its sliding layers get plain caches.
final class Olmo3Model: TinyModel {}
