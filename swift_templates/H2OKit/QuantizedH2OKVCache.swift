import Foundation
import MLX
import MLXLMCommon

/// ``H2OKVCache`` whose rows are quantized once, when they are written.
///
/// Words, scales and biases are those of `quantized(_:groupSize:bits:)`; attention reads
/// them as they are, and eviction moves none. It is no `QuantizedKVCacheProtocol`:
/// upstream would take it to its own quantized attention, which gives no scores.
///
/// Its `state` begins with the rows, uint32 `[B, Hkv, N, words]`: words, scales and biases
/// of the key, then those of the value. The rest is that of ``H2OKVCache``.
package final class QuantizedH2OKVCache: H2OCacheImplementation {
    public static let format = "h2o.quantized.1"

    static let blankFormat = MLXFast.H2ORowFormat(keyBits: 8, valueBits: 8)

    var core: H2OCacheCore

    init(_ core: H2OCacheCore) {
        self.core = core
    }

    /// - Parameters:
    ///   - configuration: which tokens it keeps
    ///   - groupSize: 32, 64 or 128 elements share a scale and a bias; divides the head dims
    ///   - keyBits: 4 or 8
    ///   - valueBits: 4 or 8; keys 8 with values 4 is the compact setting
    ///   - isRotated: whether keys and values are rotated before they are quantized, which
    ///     loses less of them at 4 bits and costs a few small operations at every step
    /// - Throws: ``H2OCacheError`` when a value is none of these
    public convenience init(
        configuration: H2OConfiguration, groupSize: Int = 64, keyBits: Int, valueBits: Int,
        isRotated: Bool = false
    ) throws {
        let format = MLXFast.H2ORowFormat(
            keyBits: keyBits, valueBits: valueBits, groupSize: groupSize, isRotated: isRotated)
        try H2OStorage.check(format)
        self.init(H2OCacheCore(configuration, format))
    }

    /// - Parameters:
    ///   - maxSize: C, the rows each KV head keeps
    ///   - heavyBudget: rows for heavy hitters, nil for half of `maxSize`
    ///   - recentBudget: the newest tokens that are kept, nil for the remaining rows
    ///   - sinkSize: the first tokens, which are kept
    ///   - groupSize: 32, 64 or 128 elements share a scale and a bias; divides the head dims
    ///   - bits: 4 or 8, of keys and values alike
    /// - Throws: ``H2OCacheError`` when the values do not fit together
    public convenience init(
        maxSize: Int, heavyBudget: Int? = nil, recentBudget: Int? = nil, sinkSize: Int = 4,
        groupSize: Int = 64, bits: Int = 8
    ) throws {
        try self.init(
            maxSize: maxSize, heavyBudget: heavyBudget, recentBudget: recentBudget,
            sinkSize: sinkSize, groupSize: groupSize, keyBits: bits, valueBits: bits)
    }

    /// The same with bits of their own for keys and values.
    public convenience init(
        maxSize: Int, heavyBudget: Int? = nil, recentBudget: Int? = nil, sinkSize: Int = 4,
        groupSize: Int = 64, keyBits: Int, valueBits: Int
    ) throws {
        let configuration = try H2OConfiguration(
            maxSize: maxSize, sinkSize: sinkSize, heavyBudget: heavyBudget,
            recentBudget: recentBudget)
        try self.init(
            configuration: configuration, groupSize: groupSize, keyBits: keyBits,
            valueBits: valueBits)
    }

    public convenience init(
        state: [MLXArray], metaState: [String], archive: URL?
    ) throws {
        self.init(try Self.restored(state, metaState, archive: archive))
    }

    /// Bits of a key's element.
    public var keyBits: Int { core.format.keyBits }

    /// Bits of a value's element.
    public var valueBits: Int { core.format.valueBits }

    /// Elements that share a scale and a bias.
    public var groupSize: Int { core.format.groupSize }

    /// Whether keys and values are rotated before they are quantized.
    public var isRotated: Bool { core.format.isRotated }
}
