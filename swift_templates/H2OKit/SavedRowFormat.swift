import MLX

/// How a saved cache stores its rows, in Python's names: `key_bits` and `value_bits`, or,
/// with a ring, `heavy_bits`, `recent_bits` and `value_dim`. `rotated` is left out where rows
/// are not, as before there were such rows.
struct SavedRowFormat: Codable {
    let format: MLXFast.H2ORowFormat
    let valueDim: Int?

    init(_ format: MLXFast.H2ORowFormat, valueDim: Int?) {
        self.format = format
        self.valueDim = valueDim
    }

    /// Nil for dense rows, of which nothing is saved.
    ///
    /// - Parameters:
    ///   - text: what was saved
    ///   - format: one of the same kind of cache
    /// - Throws: ``H2OCacheError``
    init?(_ text: String?, like format: MLXFast.H2ORowFormat) throws {
        let hasRing = format.recentBits != nil
        guard hasRing || format.keyBits != 16 else { return nil }
        self = try decode(SavedRowFormat.self, text)
        guard (self.format.recentBits != nil) == hasRing else {
            throw H2OCacheError.damaged(reason: "its rows are those of another kind of cache")
        }
        try H2OStorage.check(self.format)
    }

    init(from decoder: any Decoder) throws {
        let saved = try decoder.container(keyedBy: CodingKeys.self)
        let recentBits = try saved.decodeIfPresent(Int.self, forKey: .recentBits)
        let hasRing = recentBits != nil
        format = MLXFast.H2ORowFormat(
            keyBits: try saved.decode(Int.self, forKey: hasRing ? .heavyBits : .keyBits),
            valueBits: try saved.decode(Int.self, forKey: hasRing ? .heavyBits : .valueBits),
            groupSize: try saved.decode(Int.self, forKey: .groupSize),
            dtype: try saved.decode(SavedDType.self, forKey: .dtype).value,
            recentBits: recentBits,
            isRotated: try !hasRing
                && saved.decodeIfPresent(Bool.self, forKey: .rotated) ?? false)
        valueDim = hasRing ? try saved.decode(Int.self, forKey: .valueDim) : nil
    }

    func encode(to encoder: any Encoder) throws {
        var saved = encoder.container(keyedBy: CodingKeys.self)
        if let recentBits = format.recentBits {
            try saved.encode(format.keyBits, forKey: .heavyBits)
            try saved.encode(recentBits, forKey: .recentBits)
            try saved.encode(valueDim, forKey: .valueDim)
        } else {
            try saved.encode(format.keyBits, forKey: .keyBits)
            try saved.encode(format.valueBits, forKey: .valueBits)
            if format.isRotated { try saved.encode(true, forKey: .rotated) }
        }
        try saved.encode(format.groupSize, forKey: .groupSize)
        try saved.encode(SavedDType(format.dtype), forKey: .dtype)
    }

    private enum CodingKeys: String, CodingKey {
        case keyBits = "key_bits"
        case valueBits = "value_bits"
        case heavyBits = "heavy_bits"
        case recentBits = "recent_bits"
        case groupSize = "group_size"
        case dtype
        case valueDim = "value_dim"
        case rotated
    }
}

/// The dtypes of keys and values by Python's names.
enum SavedDType: String, Codable {
    case float32 = "mlx.core.float32"
    case float16 = "mlx.core.float16"
    case bfloat16 = "mlx.core.bfloat16"

    init(_ dtype: DType) {
        switch dtype {
        case .float16: self = .float16
        case .bfloat16: self = .bfloat16
        default: self = .float32
        }
    }

    var value: DType {
        switch self {
        case .float32: .float32
        case .float16: .float16
        case .bfloat16: .bfloat16
        }
    }
}
