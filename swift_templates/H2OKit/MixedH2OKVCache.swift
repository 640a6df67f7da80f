import Foundation
import MLX
import MLXLMCommon

/// ``H2OKVCache`` that stores its newest tokens at one precision and the rest at another.
///
/// The token of position p lies in ring slot `p % recentBudget`. When as many newer ones
/// have come it moves into the pool of `maxSize - recentBudget` rows, over the least
/// important row if the pool is full. Policy and kept positions are those of the other
/// caches. Tokens cannot be taken back: what moved to the pool has lost its precision.
///
/// Its `state` is pool and ring, each `[B, Hkv, capacity, its row]`, then as
/// ``H2OKVCache``'s, whose rows are the pool's and then the ring's slots.
package final class MixedH2OKVCache: H2OCacheImplementation {
    public static let format = "h2o.mixed.1"

    static let blankFormat = MLXFast.H2ORowFormat(keyBits: 8, valueBits: 8, recentBits: 16)

    var core: H2OCacheCore

    init(_ core: H2OCacheCore) {
        self.core = core
    }

    /// - Parameters:
    ///   - configuration: which tokens it keeps
    ///   - heavyBits: 4, 8 or 16 for the pool
    ///   - recentBits: 4, 8 or 16 for the ring
    ///   - groupSize: 32, 64 or 128 elements share a scale and a bias; divides the head dims
    /// - Throws: ``H2OCacheError`` when a value is none of these
    public convenience init(
        configuration: H2OConfiguration, heavyBits: Int = 8, recentBits: Int = 16,
        groupSize: Int = 64
    ) throws {
        let format = MLXFast.H2ORowFormat(
            keyBits: heavyBits, valueBits: heavyBits, groupSize: groupSize, recentBits: recentBits)
        try H2OStorage.check(format)
        self.init(H2OCacheCore(configuration, format))
    }

    /// - Parameters:
    ///   - maxSize: C, the rows each KV head keeps
    ///   - heavyBudget: rows for heavy hitters, nil for half of `maxSize`
    ///   - recentBudget: the newest tokens that are kept, nil for the remaining rows
    ///   - sinkSize: the first tokens, which are kept
    ///   - heavyBits: 4, 8 or 16 for the pool
    ///   - recentBits: 4, 8 or 16 for the ring
    ///   - groupSize: 32, 64 or 128 elements share a scale and a bias; divides the head dims
    /// - Throws: ``H2OCacheError`` when the values do not fit together
    public convenience init(
        maxSize: Int, heavyBudget: Int? = nil, recentBudget: Int? = nil, sinkSize: Int = 4,
        heavyBits: Int = 8, recentBits: Int = 16, groupSize: Int = 64
    ) throws {
        let configuration = try H2OConfiguration(
            maxSize: maxSize, sinkSize: sinkSize, heavyBudget: heavyBudget,
            recentBudget: recentBudget)
        try self.init(
            configuration: configuration, heavyBits: heavyBits, recentBits: recentBits,
            groupSize: groupSize)
    }

    public convenience init(
        state: [MLXArray], metaState: [String], archive: URL?
    ) throws {
        self.init(try Self.restored(state, metaState, archive: archive))
    }

    /// Bits of an element in the pool.
    public var heavyBits: Int { core.format.keyBits }

    /// Bits of an element in the ring.
    public var recentBits: Int { core.format.recentBits ?? core.format.keyBits }

    /// Elements that share a scale and a bias.
    public var groupSize: Int { core.format.groupSize }
}
