import MLXLMCommon

/// H2O caches for a whole model: what its full-attention layers get in place of a plain
/// cache. Layers with a cache of another kind (sliding window, recurrent) keep it; in a
/// layer with several caches the plain one is replaced.
public struct H2OCaches: Hashable, Sendable {
    /// Which tokens each cache keeps.
    public var configuration: H2OConfiguration
    /// How rows are stored.
    public var storage: H2OStorage
    /// Elements of quantized rows that share a scale and a bias, 32, 64 or 128; divides the head
    /// dims.
    public var groupSize: Int
    /// Budgets that differ from layer to layer.
    public var budgets: H2OBudgets?

    public init(
        configuration: H2OConfiguration, storage: H2OStorage = .dense, groupSize: Int = 64,
        budgets: H2OBudgets? = nil
    ) {
        self.configuration = configuration
        self.storage = storage
        self.groupSize = groupSize
        self.budgets = budgets
    }
}

extension H2OCaches: KVCacheMaker {
    /// - Throws: ``H2OCacheError/excludedOption(_:)``
    public func check(_ parameters: GenerateParameters) throws {
        if let setting = parameters.otherCacheSetting {
            throw H2OCacheError.excludedOption(setting)
        }
    }

    /// One empty cache for each that the model makes, for
    /// `generate(input:cache:parameters:context:)`.
    ///
    /// - Throws: ``H2OCacheError``
    public func makeCaches(for model: any LanguageModel) throws -> [any KVCache] {
        let name = H2OFamilies.name(of: model)
        // No parameters: those that bound or quantize would give other caches to replace.
        let own = try model.ownCaches()
        if let reason = H2OFamilies.reasonAgainst(model, caches: own) {
            throw H2OCacheError.unfitModel(name, reason: reason)
        }
        let plain = own.map(\.plainCaches)
        let evicting = plain.indices.filter { plain[$0] > 0 }
        guard !evicting.isEmpty else {
            let kinds = Set(own.map { String(describing: type(of: $0)) }).sorted()
            let found = kinds.isEmpty ? "no caches" : kinds.joined(separator: ", ")
            throw H2OCacheError.unfitModel(
                name, reason: "it has \(found) and no plain KVCacheSimple to bound")
        }
        for layer in configuration.recall?.layers ?? [] where !evicting.contains(layer) {
            throw H2OCacheError.layerKeepsOwnCache(
                layer, setting: "recall.layers", model: name, evicting: evicting)
        }
        try budgets?.check(own.count, evicting: evicting, model: name)
        return try own.enumerated().map { layer, cache in
            guard plain[layer] > 0 else { return cache }
            let configuration =
                try budgets?.configuration(of: layer, common: configuration)
                ?? configuration.ofLayer(layer)
            var made = try (0 ..< plain[layer]).map { _ in
                try storage.makeCache(configuration, groupSize: groupSize)
            }
            return cache.replacingPlainCaches { made.removeLast() }
        }
    }
}

extension KVCache {
    /// How many of upstream's caches that keep all tokens this is or holds.
    fileprivate var plainCaches: Int {
        leaves.filter { type(of: $0) == KVCacheSimple.self }.count
    }

    fileprivate func replacingPlainCaches(_ make: () -> any KVCache) -> any KVCache {
        guard let list = self as? CacheList else { return plainCaches > 0 ? make() : self }
        list.mapChildren { $0.replacingPlainCaches(make) }
        return list
    }
}
