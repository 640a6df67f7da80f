import Foundation
import MLX
import MLXLMCommon

/// What each of the caches below is: the layer's cache in the core, and what it was made of.
struct H2OLayer {
    private(set) var configuration: H2OConfiguration

    /// How the rows are stored; its dtype is the one that it was made with.
    let format: MLXFast.H2ORowFormat

    let core: MLXFast.H2OLayerCache

    init(_ configuration: H2OConfiguration, _ format: MLXFast.H2ORowFormat) {
        self.init(
            configuration, format,
            MLXFast.H2OLayerCache(policy: configuration.policy, format: format))
        configuration.warnOnce()
    }

    init(
        _ configuration: H2OConfiguration, _ format: MLXFast.H2ORowFormat,
        _ core: MLXFast.H2OLayerCache
    ) {
        H2OWarning.listens
        (self.configuration, self.format, self.core) = (configuration, format, core)
    }

    func copy() -> H2OLayer { H2OLayer(configuration, format, core.copy()) }

    /// Goes on with the archive in a new folder, the one that a configuration names. Does nothing
    /// if it names none.
    ///
    /// - Throws: ``H2OCacheError/archive(_:)`` or `MLXError`
    mutating func moveArchive(to other: H2OConfiguration) throws {
        guard let store = other.recall?.store else { return }
        try H2OCacheError.ofCore { try core.moveArchive(to: store) }
        if core.savedArchive != nil { configuration = try configuration.archiving(in: store) }
    }
}

/// What the H2O caches share: they differ in how their rows are stored.
///
/// In the shapes: B batch, Hq query heads, Hkv KV heads, L new tokens, N rows in use,
/// C the configuration's `maxSize`, Dk and Dv the head dims of keys and values.
protocol H2OCacheImplementation: AnyObject, H2OScoreTracking {
    /// A format of this kind of cache; a saved one says which it has.
    static var blankFormat: MLXFast.H2ORowFormat { get }

    var layer: H2OLayer { get set }

    /// The arrays that were set, until the strings that belong to them are.
    var loaded: [MLXArray] { get set }

    init(_ layer: H2OLayer)
}

extension H2OCacheImplementation {
    public var configuration: H2OConfiguration { layer.configuration }

    public var maxSize: Int? { configuration.maxSize }

    /// Tokens seen so far: the position of the next one. Only ``trim(_:)`` lowers it.
    public var offset: Int { layer.core.offset }

    public var ropeOffset: RoPEOffset { .scalar(offset) }

    public var length: Int { layer.core.length }

    public var scores: MLXArray? { layer.core.ledger?.scores }

    public var positions: MLXArray? { layer.core.ledger?.positions }

    public var held: MLXArray? { layer.core.ledger?.held }

    public var recalled: H2ORecallStatistics? {
        let numbers = layer.core.numbers
        return numbers.archiveBytes.map {
            H2ORecallStatistics(
                rows: numbers.recalledRows, seconds: numbers.recallSeconds, archiveBytes: $0)
        }
    }

    public func attend(
        queries: MLXArray, keys: MLXArray, values: MLXArray, scale: Float,
        mask: MLXFast.ScaledDotProductAttentionMaskMode
    ) -> MLXArray {
        layer.core.attend(queries: queries, keys: keys, values: values, scale: scale, mask: mask)
    }

    public func update(keys: MLXArray, values: MLXArray) -> (MLXArray, MLXArray) {
        layer.core.write(keys: keys, values: values)
    }

    public var isTrimmable: Bool { layer.core.isTrimmable }

    /// Whether tokens could still be taken back after so many more.
    public func isTrimmable(after positions: Int) -> Bool {
        isTrimmable && offset + positions <= configuration.maxSize
    }

    @discardableResult
    public func trim(_ n: Int) -> Int { layer.core.trim(n) }

    /// The mask of `n` new tokens over the rows in use and themselves. After an eviction
    /// rows are no longer positions, so that a window cannot be served.
    public func makeMask(
        n: Int, windowSize: Int?, returnArray: Bool
    ) -> MLXFast.ScaledDotProductAttentionMaskMode {
        let offset = offset
        let length = min(offset, configuration.maxSize)
        if let windowSize, windowSize < length + n {
            precondition(
                offset <= configuration.maxSize,
                "\(Self.self) has evicted tokens and cannot serve a window of \(windowSize) "
                    + "positions. Give layers with a sliding window a RotatingKVCache.")
            return .array(createCausalMask(n: n, offset: length, windowSize: windowSize))
        }
        if n == 1 { return .none }
        return returnArray ? .array(createCausalMask(n: n, offset: length)) : .causal
    }

    public func copy() -> any KVCache { Self(layer.copy()) }

    /// What to evaluate so that the whole cache is: the ledger, which follows from the rows.
    /// The rows themselves would be copied by the next write, as somebody might hold them.
    public func innerState() -> [MLXArray] {
        let core = layer.core
        let ledger = core.ledger?.arrays ?? []
        guard core.waiting > 0 else { return ledger }
        core.share()
        return core.rows + ledger
    }

    public var state: [MLXArray] {
        get { layer.core.arrays() }
        set { loaded = newValue }
    }

    /// What ``state`` is of. Setting it makes a cache of the arrays that were set before.
    public var metaState: [String] {
        get { SavedHeader(of: layer).fields(kind: Self.format) }
        set {
            do {
                layer = try Self.restored(loaded, newValue, archive: nil)
                loaded = []
            } catch {
                // A setter cannot throw: as upstream's caches do.
                fatalError(error.localizedDescription)
            }
        }
    }

    /// What a cache is made of again.
    ///
    /// - Throws: ``H2OCacheError``
    static func restored(
        _ state: [MLXArray], _ metaState: [String], archive: URL?
    ) throws -> H2OLayer {
        let saved = try SavedHeader(metaState, kind: format, like: blankFormat, archive: archive)
        let core = try H2OCacheError.ofSaved { try MLXFast.H2OLayerCache(saved.cache(of: state)) }
        return H2OLayer(saved.configuration, saved.format, core)
    }
}

/// A KV cache that keeps at most C tokens per head: sinks, the newest tokens, and those
/// that attention looks at (heavy hitters).
///
/// Its `state` is the rows `[B, Hkv, N, Dk + Dv]`, scores, positions and novelty
/// `[B, Hkv, C]`, key sum `[B, Hkv, Dk]` and victim `[B, Hkv]`; empty while the cache is.
package final class H2OKVCache: H2OCacheImplementation {
    public static let format = "h2o.dense.1"

    static let blankFormat = MLXFast.H2ORowFormat.dense

    var layer: H2OLayer
    var loaded = [MLXArray]()

    init(_ layer: H2OLayer) {
        self.layer = layer
    }

    public convenience init(configuration: H2OConfiguration) {
        self.init(H2OLayer(configuration, .dense))
    }

    /// - Parameters:
    ///   - maxSize: C, the rows each KV head keeps
    ///   - heavyBudget: rows for heavy hitters, nil for half of `maxSize`
    ///   - recentBudget: the newest tokens that are kept, nil for the remaining rows
    ///   - sinkSize: the first tokens, which are kept
    /// - Throws: ``H2OCacheError`` when the values do not fit together
    public convenience init(
        maxSize: Int, heavyBudget: Int? = nil, recentBudget: Int? = nil, sinkSize: Int = 4
    ) throws {
        let configuration = try H2OConfiguration(
            maxSize: maxSize, sinkSize: sinkSize, heavyBudget: heavyBudget,
            recentBudget: recentBudget)
        self.init(configuration: configuration)
    }

    public convenience init(
        state: [MLXArray], metaState: [String], archive: URL?
    ) throws {
        self.init(try Self.restored(state, metaState, archive: archive))
    }
}

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

    var layer: H2OLayer
    var loaded = [MLXArray]()

    init(_ layer: H2OLayer) {
        self.layer = layer
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
        self.init(H2OLayer(configuration, format))
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
    public var keyBits: Int { layer.format.keyBits }

    /// Bits of a value's element.
    public var valueBits: Int { layer.format.valueBits }

    /// Elements that share a scale and a bias.
    public var groupSize: Int { layer.format.groupSize }

    /// Whether keys and values are rotated before they are quantized.
    public var isRotated: Bool { layer.format.isRotated }
}

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

    var layer: H2OLayer
    var loaded = [MLXArray]()

    init(_ layer: H2OLayer) {
        self.layer = layer
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
        self.init(H2OLayer(configuration, format))
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
    public var heavyBits: Int { layer.format.keyBits }

    /// Bits of an element in the ring.
    public var recentBits: Int { layer.format.recentBits ?? layer.format.keyBits }

    /// Elements that share a scale and a bias.
    public var groupSize: Int { layer.format.groupSize }
}
