import Foundation

/// Budgets that differ from layer to layer, in the same JSON format as Python's:
///
///     {"format": 1, "layers": [
///       {"heavy_budget": 300, "recent_budget": 208},
///       {"heavy_budget": 150, "recent_budget": 102, "max_size": 256}, null]}
///
/// `layers` has one entry for each of the model's caches, in order. A null entry means the common
/// budgets, or a layer that keeps the model's own cache. A layer may have its own `max_size`; all
/// other settings are common. `"recall": [0, 3]` next to `layers` lists the caches that
/// recall: those that read an archive. A configuration that lists them itself has precedence.
public struct H2OBudgets: Hashable, Sendable {
    /// The rows of one layer: for heavy hitters, for the newest tokens, and in total.
    package struct Layer: Hashable, Sendable {
        package let heavyBudget: Int
        package let recentBudget: Int
        /// C of this layer; nil for the common value.
        package let maxSize: Int?

        package init(heavyBudget: Int, recentBudget: Int, maxSize: Int? = nil) {
            self.heavyBudget = heavyBudget
            self.recentBudget = recentBudget
            self.maxSize = maxSize
        }
    }

    package let layers: [Layer?]

    /// Indices of the caches that recall; nil for all caches that evict.
    public let recall: [Int]?

    package init(layers: [Layer?], recall: [Int]? = nil) {
        self.layers = layers
        self.recall = recall
    }

    /// Reads a budgets file.
    ///
    /// - Throws: ``H2OCacheError``, `DecodingError`, or an error of reading
    public init(contentsOf file: URL) throws {
        self = try H2OCacheError.reading(file) {
            try JSONDecoder().decode(H2OBudgets.self, from: RegularFile.data(file))
        }
    }

    /// Returns the common configuration with a layer's budgets, without recall if `recall` does
    /// not list the layer.
    ///
    /// - Throws: ``H2OCacheError/invalidConfiguration(_:layer:)``
    func configuration(of layer: Int, common: H2OConfiguration) throws -> H2OConfiguration {
        var common = common
        if let recall, common.recall?.layers == nil, !recall.contains(layer) {
            common = try common.with(recall: .some(nil))
        }
        common = try common.ofLayer(layer)
        guard let budget = layers[layer] else { return common }
        do {
            return try common.with(
                maxSize: budget.maxSize, heavyBudget: budget.heavyBudget,
                recentBudget: budget.recentBudget)
        } catch H2OCacheError.invalidConfiguration(let problem, _) {
            throw H2OCacheError.invalidConfiguration(problem, layer: layer)
        }
    }

    /// Refuses budgets that were made for another model.
    ///
    /// - Parameters:
    ///   - caches: the number of caches that the model makes
    ///   - evicting: indices of the H2O caches among them
    /// - Throws: ``H2OCacheError``
    func check(_ caches: Int, evicting: [Int], model: String) throws {
        guard layers.count == caches else {
            throw H2OCacheError.wrongLayerCount(
                found: layers.count, expected: caches, model: model)
        }
        let named = layers.indices.filter { layers[$0] != nil }
        for (setting, layers) in [("recall", recall ?? []), ("layers", named)] {
            for layer in layers where !evicting.contains(layer) {
                throw H2OCacheError.layerKeepsOwnCache(
                    layer, setting: "\(setting) of the H2O budgets", model: model,
                    evicting: evicting)
            }
        }
    }
}

extension H2OBudgets: Codable {
    private static let format = 1

    private enum Field: String, CodingKey, CaseIterable {
        case format, layers, recall
    }

    public init(from decoder: any Decoder) throws {
        let fields = try decoder.fields(Field.self)
        let format = try fields.decode(Int.self, forKey: .format)
        guard format == Self.format else {
            throw H2OCacheError.otherBudgetsFormat(found: format, known: Self.format)
        }
        layers = try fields.decode([Layer?].self, forKey: .layers)
        recall = try fields.decodeIfPresent([Int].self, forKey: .recall)
    }

    public func encode(to encoder: any Encoder) throws {
        var fields = encoder.container(keyedBy: Field.self)
        try fields.encode(Self.format, forKey: .format)
        try fields.encode(layers, forKey: .layers)
        try fields.encodeIfPresent(recall, forKey: .recall)
    }
}

extension H2OBudgets.Layer: Codable {
    private enum CodingKeys: String, CodingKey, CaseIterable {
        case heavyBudget = "heavy_budget"
        case recentBudget = "recent_budget"
        case maxSize = "max_size"
    }

    package init(from decoder: any Decoder) throws {
        let fields = try decoder.fields(CodingKeys.self)
        heavyBudget = try fields.decode(Int.self, forKey: .heavyBudget)
        recentBudget = try fields.decode(Int.self, forKey: .recentBudget)
        maxSize = try fields.decodeIfPresent(Int.self, forKey: .maxSize)
    }
}
