import Foundation

/// Budgets that differ from layer to layer; the same JSON as Python's:
///
///     {"format": 1, "layers": [
///       {"heavy_budget": 300, "recent_budget": 208},
///       {"heavy_budget": 150, "recent_budget": 102, "max_size": 256}, null]}
///
/// One entry for each of the model's caches, in its order, or null where the layer keeps
/// the budgets common to all (and where it keeps the model's own cache). A layer may have a
/// `max_size` of its own; all other settings are common. `"recall": [0, 3]` beside `layers`
/// names the caches that recall rows, unless the configuration names them itself.
public struct H2OBudgets: Hashable, Sendable {
    /// Rows of one layer for heavy hitters, for the newest tokens, and all of its rows.
    public struct Layer: Hashable, Sendable {
        public let heavyBudget: Int
        public let recentBudget: Int
        /// C of the layer; nil for the common one.
        public let maxSize: Int?

        public init(heavyBudget: Int, recentBudget: Int, maxSize: Int? = nil) {
            self.heavyBudget = heavyBudget
            self.recentBudget = recentBudget
            self.maxSize = maxSize
        }
    }

    public let layers: [Layer?]

    /// Indices of the caches that recall rows; nil for all that evict.
    public let recall: [Int]?

    public init(layers: [Layer?], recall: [Int]? = nil) {
        self.layers = layers
        self.recall = recall
    }

    /// Reads a file of budgets.
    ///
    /// - Throws: ``H2OBudgetsError``, `DecodingError`, or an error of reading
    public init(contentsOf file: URL) throws {
        self = try JSONDecoder().decode(H2OBudgets.self, from: Data(contentsOf: file))
    }

    /// The common configuration with a layer's budgets, and without recall where it is not to
    /// recall.
    ///
    /// - Throws: ``H2OBudgetsError`` when they do not fit into the layer's rows
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
        } catch H2OConfigurationError.nothingToEvict(let maxSize, let held, _) {
            throw H2OBudgetsError.nothingToEvict(layer: layer, held: held, maxSize: maxSize)
        } catch {
            throw H2OBudgetsError.layer(layer, error.localizedDescription)
        }
    }

    /// Refuses budgets of another model.
    ///
    /// - Parameter evicting: for each of the model's caches, whether it is an H2O cache
    func check(evicting: [Bool], model: String) throws {
        guard layers.count == evicting.count else {
            throw H2OBudgetsError.otherModel(
                layers: layers.count, model: model, caches: evicting.count)
        }
        for layer in recall ?? [] where !evicting.indices.contains(layer) || !evicting[layer] {
            throw H2OBudgetsError.recall(layer, model: model)
        }
        for (layer, evicts) in evicting.enumerated() where layers[layer] != nil && !evicts {
            throw H2OBudgetsError.layer(
                layer,
                "\(model) has no full attention there, and the layer keeps its own cache. "
                    + "Write null.")
        }
    }
}

/// Why budgets were refused.
public enum H2OBudgetsError: LocalizedError, Hashable, Sendable {
    /// The JSON is not of this kind or format.
    case otherFormat(String)
    /// There must be one entry for each of the model's caches.
    case otherModel(layers: Int, model: String, caches: Int)
    /// An entry cannot be used.
    case layer(Int, String)
    /// A cache that is to recall rows does not exist or evicts none.
    case recall(Int, model: String)
    /// Sinks, pinned and recent positions hold all rows of a layer.
    case nothingToEvict(layer: Int, held: Int, maxSize: Int)

    public var errorDescription: String? {
        switch self {
        case .otherFormat(let what):
            "H2O budgets must be {\"format\": 1, \"layers\": [...]}, but \(what)."
        case .otherModel(let layers, let model, let caches):
            "The H2O budgets have \(layers) entries; \(model) has \(caches) caches. Write one "
                + "entry for each, null for the common budgets."
        case .layer(let layer, let what):
            "layers[\(layer)] of the H2O budgets: \(what)"
        case .recall(let layer, let model):
            "recall of the H2O budgets names cache \(layer), which does not evict in \(model). "
                + "Name caches that evict."
        case .nothingToEvict(let layer, let held, let maxSize):
            "layers[\(layer)] of the H2O budgets: "
                + H2OConfigurationError.nothingToEvict(
                    maxSize: maxSize, held: held, needed: held + 1
                ).localizedDescription
        }
    }
}

extension H2OBudgets: Codable {
    private static let format = 1

    private enum Field: String, CodingKey, CaseIterable {
        case format, layers, recall
    }

    public init(from decoder: any Decoder) throws {
        try decoder.refuseFields(except: Field.allCases.map(\.rawValue)) {
            H2OBudgetsError.otherFormat("there is \"\($0)\"")
        }
        let fields = try decoder.container(keyedBy: Field.self)
        let format = try fields.decode(Int.self, forKey: .format)
        guard format == Self.format else {
            throw H2OBudgetsError.otherFormat("format is \(format)")
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
    private enum Field: String, CodingKey, CaseIterable {
        case heavyBudget = "heavy_budget"
        case recentBudget = "recent_budget"
        case maxSize = "max_size"
    }

    public init(from decoder: any Decoder) throws {
        try decoder.refuseFields(except: Field.allCases.map(\.rawValue)) {
            H2OBudgetsError.otherFormat("an entry has \"\($0)\"")
        }
        let fields = try decoder.container(keyedBy: Field.self)
        heavyBudget = try fields.decode(Int.self, forKey: .heavyBudget)
        recentBudget = try fields.decode(Int.self, forKey: .recentBudget)
        maxSize = try fields.decodeIfPresent(Int.self, forKey: .maxSize)
    }

    public func encode(to encoder: any Encoder) throws {
        var fields = encoder.container(keyedBy: Field.self)
        try fields.encode(heavyBudget, forKey: .heavyBudget)
        try fields.encode(recentBudget, forKey: .recentBudget)
        try fields.encodeIfPresent(maxSize, forKey: .maxSize)
    }
}
