/// How a cache stores its rows; the raw values are Python's `kv` names.
public enum H2OStorage: String, Codable, CaseIterable, Sendable {
    /// As they come.
    case dense
    /// Keys and values in 8 bits.
    case eightBits = "8"
    /// Keys in 8, values in 4 bits: the compact setting.
    case keys8Values4 = "k8v4"
    /// Keys and values in 4 bits.
    case fourBits = "4"
    /// Recent tokens as they come, all others in 8 bits.
    case recent16Heavy8 = "r16h8"
    /// Recent tokens as they come, all others in 4 bits.
    case recent16Heavy4 = "r16h4"
    /// Recent tokens in 8, all others in 4 bits.
    case recent8Heavy4 = "r8h4"

    /// An empty cache that stores its rows so.
    ///
    /// - Parameters:
    ///   - configuration: which tokens it keeps
    ///   - groupSize: 32, 64 or 128 elements of quantised rows share a scale and a bias;
    ///     divides the head dims
    /// - Throws: ``H2OConfigurationError`` when `groupSize` is none of these
    public func makeCache(
        _ configuration: H2OConfiguration, groupSize: Int = 64
    ) throws -> any H2OScoreTracking {
        func quantized(_ keyBits: Int, _ valueBits: Int) throws -> any H2OScoreTracking {
            try QuantizedH2OKVCache(
                configuration: configuration, groupSize: groupSize, keyBits: keyBits,
                valueBits: valueBits)
        }
        func mixed(_ heavyBits: Int, _ recentBits: Int) throws -> any H2OScoreTracking {
            try MixedH2OKVCache(
                configuration: configuration, heavyBits: heavyBits, recentBits: recentBits,
                groupSize: groupSize)
        }
        switch self {
        case .dense: return H2OKVCache(configuration: configuration)
        case .eightBits: return try quantized(8, 8)
        case .keys8Values4: return try quantized(8, 4)
        case .fourBits: return try quantized(4, 4)
        case .recent16Heavy8: return try mixed(8, 16)
        case .recent16Heavy4: return try mixed(4, 16)
        case .recent8Heavy4: return try mixed(4, 8)
        }
    }

    /// Refuses bits that are not among `allowed`.
    static func check(_ bits: [(name: String, value: Int)], _ allowed: [Int]) throws {
        for (name, value) in bits where !allowed.contains(value) {
            throw H2OConfigurationError.outOfRange(
                field: name, value: "\(value)", allowed: oneOf(allowed))
        }
    }

    static func check(groupSize: Int) throws {
        guard [32, 64, 128].contains(groupSize) else {
            throw H2OConfigurationError.outOfRange(
                field: "group_size", value: "\(groupSize)", allowed: oneOf([32, 64, 128]))
        }
    }

    private static func oneOf(_ values: [Int]) -> String {
        values.dropLast().map(String.init).joined(separator: ", ")
            + " or \(values.last.map(String.init) ?? "")"
    }
}
