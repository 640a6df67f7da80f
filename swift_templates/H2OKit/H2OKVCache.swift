import Foundation
import MLX
import MLXLMCommon

/// The state of each cache below: the layer's cache in the core, and its settings.
struct H2OLayer {
    private(set) var configuration: H2OConfiguration

    /// How the rows are stored, with the dtype of the initializer.
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

    /// Continues the archive in the folder that the configuration names. Does nothing if it
    /// names none.
    ///
    /// - Throws: ``H2OCacheError/archive(_:)`` or `MLXError`
    mutating func moveArchive(to other: H2OConfiguration) throws {
        guard let store = other.recall?.store else { return }
        try H2OCacheError.ofCore { try core.moveArchive(to: store) }
        if core.savedArchive != nil { configuration = try configuration.archiving(in: store) }
    }
}

/// The base class of the H2O caches, which differ only in how they store rows.
///
/// In the shapes: B batch, Hq query heads, Hkv KV heads, L new tokens, N rows in use,
/// C the configuration's `maxSize`, Dk and Dv the head dims of keys and values.
protocol H2OCacheImplementation: AnyObject, H2OScoreTracking {
    /// A row format of this kind of cache; a saved cache names its own.
    static var blankFormat: MLXFast.H2ORowFormat { get }

    var layer: H2OLayer { get set }

    /// The arrays that were set, until their strings are set too.
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

    /// Whether tokens can still be removed after writing this many more.
    public func isTrimmable(after positions: Int) -> Bool {
        isTrimmable && offset + positions <= configuration.maxSize
    }

    @discardableResult
    public func trim(_ n: Int) -> Int { layer.core.trim(n) }

    /// The mask of `n` new tokens over the rows in use and themselves. A sliding window is not
    /// possible after an eviction, because rows are no longer in the order of positions.
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

    /// The arrays to evaluate so that the whole cache is evaluated: the ledger, which is
    /// computed from the rows. The rows are left out, because the next write would copy rows
    /// that a caller might hold.
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

    /// The strings that describe ``state``. Setting them restores the cache from the arrays
    /// that were set before.
    public var metaState: [String] {
        get { SavedHeader(of: layer).fields(kind: Self.format) }
        set {
            do {
                layer = try Self.restored(loaded, newValue, archive: nil)
                loaded = []
            } catch {
                // A setter cannot throw, so this ends the process, as upstream's caches do.
                fatalError(error.localizedDescription)
            }
        }
    }

    /// Restores the state of a saved cache.
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

/// A KV cache that keeps at most C tokens per head: sinks, the newest tokens, and heavy
/// hitters, the tokens that receive most attention.
///
/// Its `state` is the rows `[B, Hkv, N, Dk + Dv]`, scores, positions and novelty `[B, Hkv, C]`,
/// key sum `[B, Hkv, Dk]` and victim `[B, Hkv]`. It has no arrays while the cache is empty.
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
    /// - Throws: ``H2OCacheError`` if the values contradict each other
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
/// Words, scales and biases are those of `quantized(_:groupSize:bits:)`. Attention reads them
/// without unpacking rows, and eviction moves no row. It does not conform to
/// `QuantizedKVCacheProtocol`, because mlx-swift-lm's quantized attention returns no scores.
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
    /// - Throws: ``H2OCacheError`` if a value is not among these
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
    /// - Throws: ``H2OCacheError`` if the values contradict each other
    public convenience init(
        maxSize: Int, heavyBudget: Int? = nil, recentBudget: Int? = nil, sinkSize: Int = 4,
        groupSize: Int = 64, bits: Int = 8
    ) throws {
        try self.init(
            maxSize: maxSize, heavyBudget: heavyBudget, recentBudget: recentBudget,
            sinkSize: sinkSize, groupSize: groupSize, keyBits: bits, valueBits: bits)
    }

    /// Makes a cache with different bits for keys and values.
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
/// The token at position p is stored in slot `p % recentBudget` of a ring. After `recentBudget`
/// newer tokens it moves into a pool of `maxSize - recentBudget` rows; in a full pool it
/// overwrites the least important row. The policy and the kept positions are the same as in the
/// other caches. Tokens cannot be removed, because rows in the pool have lost their precision.
///
/// Its `state` is pool and ring, each `[B, Hkv, capacity, its row]`, followed by scores and so
/// on as in ``H2OKVCache``, for the rows of the pool and then the slots of the ring.
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
    /// - Throws: ``H2OCacheError`` if a value is not among these
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
    /// - Throws: ``H2OCacheError`` if the values contradict each other
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
