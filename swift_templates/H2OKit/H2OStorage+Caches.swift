import MLX

extension H2OStorage {
    /// An empty cache that stores its rows so.
    ///
    /// - Parameters:
    ///   - configuration: which tokens it keeps
    ///   - groupSize: 32, 64 or 128 elements of quantized rows share a scale and a bias;
    ///     divides the head dims
    /// - Throws: ``H2OCacheError/invalidConfiguration(_:layer:)`` when `groupSize` is none of
    ///   these
    package func makeCache(
        _ configuration: H2OConfiguration, groupSize: Int = 64
    ) throws -> any H2OScoreTracking {
        let (key, value, recent) = bits
        if let recent {
            return try MixedH2OKVCache(
                configuration: configuration, heavyBits: key, recentBits: recent,
                groupSize: groupSize)
        }
        if self == .dense { return H2OKVCache(configuration: configuration) }
        return try QuantizedH2OKVCache(
            configuration: configuration, groupSize: groupSize, keyBits: key, valueBits: value,
            isRotated: isRotated)
    }

    /// Refuses bits and group sizes that no cache has, by their names in saved caches.
    ///
    /// - Throws: ``H2OCacheError/invalidConfiguration(_:layer:)``
    static func check(_ format: MLXFast.H2ORowFormat) throws {
        let fields =
            format.recentBits.map {
                [("heavy_bits", format.keyBits, [4, 8, 16]), ("recent_bits", $0, [4, 8, 16])]
            } ?? [("key_bits", format.keyBits, [4, 8]), ("value_bits", format.valueBits, [4, 8])]
        for (name, value, allowed) in fields { try check(name, value, allowed) }
        try check(groupSize: format.groupSize)
    }

    static func check(groupSize: Int) throws {
        try check("group_size", groupSize, groupSizes.sorted())
    }

    private static func check(_ field: String, _ value: Int, _ allowed: [Int]) throws {
        guard allowed.contains(value) else {
            throw H2OCacheError.invalidConfiguration(
                .outOfRange(field: field, value: "\(value)", allowed: oneOf(allowed)))
        }
    }

    private static func oneOf(_ values: [Int]) -> String {
        values.dropLast().map(String.init).joined(separator: ", ")
            + " or \(values.last.map(String.init) ?? "")"
    }
}
