import Foundation

extension H2OConfiguration {
    private static let unboundedSize = Int(Int32.max)

    /// A configuration that evicts nothing: its caches keep every token, without a ledger.
    public static func unbounded() throws -> H2OConfiguration {
        try H2OConfiguration(maxSize: unboundedSize)
    }

    /// Whether a cache is bounded; otherwise it keeps every token and needs no ledger.
    public var evicts: Bool { maxSize < Self.unboundedSize }

    /// The configuration of one layer's cache. It has no recall if `recall.layers` does not
    /// list the layer. If the archive is in files, the layer has its own folder.
    func ofLayer(_ index: Int) throws -> H2OConfiguration {
        guard let recall else { return self }
        if let layers = recall.layers, !layers.contains(index) {
            return try with(recall: .some(nil))
        }
        let digits = String(index)
        let name = "layer-" + String(repeating: "0", count: max(0, 3 - digits.count)) + digits
        return try with(
            recall: recall.with(layers: .some(nil), store: recall.store.map { $0 + "/" + name }))
    }

    /// Returns this configuration with its archive in a folder; nil for memory.
    package func archiving(in store: String?) throws -> H2OConfiguration {
        guard let recall, recall.store != store else { return self }
        return try with(recall: recall.with(layers: recall.layers, store: .some(store)))
    }

    /// Reads `recall` from a file: a mapping of settings, true for all defaults, or null.
    static func recall(in fields: KeyedDecodingContainer<CodingKeys>) throws -> H2ORecall? {
        if (try? fields.decodeIfPresent(Bool.self, forKey: .recall)) == true {
            return try H2ORecall()
        }
        return try fields.decodeIfPresent(H2ORecall.self, forKey: .recall)
    }

    static func range(_ bounds: [Int]) throws -> Range<Int> {
        guard bounds.count == 2, bounds[0] < bounds[1] else {
            throw H2OCacheError.invalidConfiguration(
                .outOfRange(
                    field: "pinned", value: "\(bounds)", allowed: H2OCacheError.allowedRanges))
        }
        return bounds[0] ..< bounds[1]
    }
}
