extension H2OStorage {
    /// An empty cache that stores its rows so.
    ///
    /// - Parameters:
    ///   - configuration: which tokens it keeps
    ///   - groupSize: 32, 64 or 128 elements of quantized rows share a scale and a bias;
    ///     divides the head dims
    /// - Throws: ``H2OConfigurationError`` when `groupSize` is none of these
    public func makeCache(
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
            configuration: configuration, groupSize: groupSize, keyBits: key, valueBits: value)
    }

    /// Refuses bits that are not among `allowed`.
    static func check(_ bits: [(name: String, value: Int)], _ allowed: [Int]) throws {
        for (name, value) in bits where !allowed.contains(value) {
            throw H2OConfigurationError.outOfRange(
                field: name, value: "\(value)", allowed: oneOf(allowed))
        }
    }

    static func check(groupSize: Int) throws {
        guard groupSizes.contains(groupSize) else {
            throw H2OConfigurationError.outOfRange(
                field: "group_size", value: "\(groupSize)", allowed: oneOf(groupSizes.sorted()))
        }
    }

    private static func oneOf(_ values: [Int]) -> String {
        values.dropLast().map(String.init).joined(separator: ", ")
            + " or \(values.last.map(String.init) ?? "")"
    }
}
