import MLX
import MLXLMCommon

/// Makes the caches of a model: H2O caches for full-attention layers, in place of plain ones.
/// Layers with a cache of another kind (sliding window, recurrent) keep it. In a layer with
/// several caches, only plain ones are replaced.
public struct H2OCaches: Hashable, Sendable {
    /// Which tokens each cache keeps.
    public var configuration: H2OConfiguration
    /// How rows are stored.
    public var storage: H2OStorage
    /// The number of elements of quantized rows that share a scale and a bias: 32, 64 or 128, a
    /// divisor of the head dims.
    public var groupSize: Int
    /// Budgets that differ from layer to layer; nil for the same budgets in all layers.
    public var budgets: H2OBudgets?

    public init(
        configuration: H2OConfiguration, storage: H2OStorage = .sixteenBits, groupSize: Int = 64,
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

    /// Makes all caches of the model, empty, for `generate(input:cache:parameters:context:)`.
    /// Caches that keep every token as the model computes it are the model's own.
    ///
    /// - Throws: ``H2OCacheError``
    public func makeCaches(for model: any LanguageModel) throws -> [any KVCache] {
        let name = H2OFamilies.name(of: model)
        // Passes no parameters to the model, because some parameters make it use bounded or
        // quantized caches.
        let own = try model.newCache(parameters: nil)
        if !configuration.evicts {
            if storage == .sixteenBits { return own }
            if storage.bits.recent != nil {
                throw H2OCacheError.recentWithoutBound(storage)
            }
        }
        if let reason = H2OFamilies.reasonAgainst(model, caches: own) {
            throw H2OCacheError.unfitModel(name, reason: reason)
        }
        let plain = own.map(\.plainCaches)
        let evicting = plain.indices.filter { plain[$0] > 0 }
        guard !evicting.isEmpty else {
            let kinds = Set(own.map { String(describing: type(of: $0)) }).sorted()
            let names = kinds.isEmpty ? "no caches" : kinds.joined(separator: ", ")
            throw H2OCacheError.unfitModel(
                name, reason: "it has \(names) and no plain KVCacheSimple to bound")
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
            var bounded = try (0 ..< plain[layer]).map { _ in
                try storage.makeCache(configuration, groupSize: groupSize)
            }
            return cache.replacingPlainCaches { bounded.removeLast() }
        }
    }
}

extension H2OStorage {
    /// Makes an empty cache that stores its rows in the form of this storage.
    ///
    /// - Parameters:
    ///   - configuration: which tokens it keeps
    ///   - groupSize: 32, 64 or 128 elements of quantized rows share a scale and a bias;
    ///     divides the head dims
    /// - Throws: ``H2OCacheError/invalidConfiguration(_:layer:)`` if `groupSize` is another
    ///   number
    package func makeCache(
        _ configuration: H2OConfiguration, groupSize: Int = 64
    ) throws -> H2OKVCache {
        guard self != .sixteenBits else { return H2OKVCache(configuration, .dense) }
        try Self.check(groupSize: groupSize)
        let (key, value, recent) = bits
        return H2OKVCache(
            configuration,
            MLXFast.H2ORowFormat(
                keyBits: key, valueBits: value, groupSize: groupSize, recentBits: recent,
                isRotated: isRotated))
    }

    /// - Throws: ``H2OCacheError/invalidConfiguration(_:layer:)``
    static func check(groupSize: Int) throws {
        guard !groupSizes.contains(groupSize) else { return }
        let allowed = groupSizes.sorted().map(String.init)
        throw H2OCacheError.invalidConfiguration(
            .outOfRange(
                field: "group_size", value: "\(groupSize)",
                allowed: allowed.dropLast().joined(separator: ", ") + " or \(allowed.last ?? "")"))
    }
}

extension KVCache {
    /// The number of plain caches, which keep all tokens: 0 or 1, or the number of plain members
    /// of a list.
    fileprivate var plainCaches: Int {
        leaves.filter { type(of: $0) == KVCacheSimple.self }.count
    }

    fileprivate func replacingPlainCaches(_ make: () -> any KVCache) -> any KVCache {
        guard let list = self as? CacheList else { return plainCaches > 0 ? make() : self }
        list.mapChildren { $0.replacingPlainCaches(make) }
        return list
    }
}

extension H2OCaches: Codable {
    /// The names of the fields in files.
    private enum CodingKeys: String, CodingKey, CaseIterable {
        case configuration = "config"
        case storage = "kv"
        case groupSize = "group_size"
        case budgets
    }

    /// Reads settings. A missing field has its default; `config` is required.
    ///
    /// - Throws: `DecodingError`, ``H2OCacheError``
    public init(from decoder: any Decoder) throws {
        let fields = try decoder.fields(CodingKeys.self)
        try self.init(
            configuration: fields.decode(H2OConfiguration.self, forKey: .configuration),
            storage: Self.storage(fields.decodeIfPresent(String.self, forKey: .storage)),
            groupSize: fields.decodeIfPresent(Int.self, forKey: .groupSize) ?? 64,
            budgets: fields.decodeIfPresent(H2OBudgets.self, forKey: .budgets))
        try H2OStorage.check(groupSize: groupSize)
    }

    private static func storage(_ name: String?) throws -> H2OStorage {
        guard let name else { return .sixteenBits }
        guard let storage = H2OStorage(rawValue: name) else {
            throw H2OCacheError.invalidConfiguration(
                .unknownChoice(
                    field: CodingKeys.storage.rawValue, value: name,
                    known: H2OStorage.allCases.map(\.rawValue)))
        }
        return storage
    }
}

extension GenerateParameters {
    /// Makes `ChatSession`, `generate` and `TokenIterator` use H2O caches instead of the
    /// model's own.
    ///
    ///     var parameters = GenerateParameters(temperature: 0)
    ///     parameters.useH2O(H2OCaches(configuration: try H2OConfiguration(maxSize: 512)))
    ///     let session = ChatSession(container, generateParameters: parameters)
    ///
    /// All three throw ``H2OCacheError`` if the model cannot use H2O caches, or if another
    /// parameter bounds or quantizes the cache. Speculative decoding throws `SpeculationRefused`.
    public mutating func useH2O(_ caches: H2OCaches) {
        kvCache = KVCacheConfiguration(strategy: .made(by: caches))
    }
}

/// Which models of mlx-swift-lm cannot use H2O caches.
enum H2OFamilies {
    /// Returns why a model cannot use H2O caches; nil if it can.
    ///
    /// - Parameter caches: the caches that the model makes
    static func reasonAgainst(_ model: any LanguageModel, caches: [any KVCache]) -> String? {
        let name = name(of: model)
        let slides = caches.contains { $0 is RotatingKVCache }
        switch name {
        case "Exaone4Model" where !slides: return nil
        default: return unfit[name]
        }
    }

    static func name(of model: any LanguageModel) -> String { String(describing: type(of: model)) }
}

extension Decoder {
    /// The fields of a JSON object.
    ///
    /// - Parameters:
    ///   - keys: the fields that it may have
    ///   - prefix: the text before the names of fields in errors
    /// - Throws: ``H2OCacheError/invalidConfiguration(_:layer:)`` for any other field
    func fields<Key: CodingKey & CaseIterable>(
        _ keys: Key.Type, prefix: String = ""
    ) throws -> KeyedDecodingContainer<Key> {
        let known = keys.allCases.map(\.stringValue)
        for field in try container(keyedBy: AnyField.self).allKeys
        where !known.contains(field.stringValue) {
            throw H2OCacheError.invalidConfiguration(
                .unknownField(field: prefix + field.stringValue, known: known))
        }
        return try container(keyedBy: keys)
    }
}

/// Any key of a JSON object.
private struct AnyField: CodingKey {
    let stringValue: String
    let intValue: Int? = nil

    init?(stringValue: String) {
        self.stringValue = stringValue
    }

    init?(intValue: Int) {
        nil
    }
}
