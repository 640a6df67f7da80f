import Foundation
import MLX
import MLXLMCommon

/// A KV cache that keeps at most C tokens per head: sinks, the newest tokens, and heavy
/// hitters, the tokens that receive most attention. With an unbounded configuration it keeps every
/// token instead, without scores and without a ledger.
///
/// `attentionWithCacheUpdate` sends a model's attention to
/// ``attend(queries:keys:values:scale:mask:)``. A model that calls ``update(keys:values:)`` and
/// computes attention itself gets correct results too, but the cache receives no scores.
///
/// B batch, Hq query heads, Hkv KV heads, L new tokens, N rows in use, C the configuration's
/// `maxSize`, Dk and Dv the head dims of keys and values. A *position* is a token's index in
/// the sequence, a *row* its place in the buffer; after eviction they differ.
///
/// Its `state` is the keys and the values of the rows, then scores and positions `[B, Hkv, C]` and
/// victim `[B, Hkv]`, which a cache that keeps every token lacks. Keys and values are
/// `[B, Hkv, N, D]`, or uint32 `[B, Hkv, N, words]` if they are quantized: words, scales and
/// biases, as `quantized(_:groupSize:bits:)` makes them. Mixed rows are a pool and a ring, each
/// with keys and values: the token at position p is in slot `p % recentBudget` of the ring until
/// `recentBudget` newer tokens have arrived, and then moves to the pool. While the cache is
/// empty, `state` has no arrays.
package final class H2OKVCache: RoutedAttentionCache {
    /// Which of Python's classes stores its rows in the same way.
    package enum Kind: String, CaseIterable {
        case dense = "H2OKVCache"
        case quantized = "QuantizedH2OKVCache"
        case mixed = "MixedH2OKVCache"

        init(_ format: MLXFast.H2ORowFormat) {
            self = format.recentBits != nil ? .mixed : format.keyBits == 16 ? .dense : .quantized
        }
    }

    package private(set) var configuration: H2OConfiguration
    /// How the rows are stored.
    private(set) var format: MLXFast.H2ORowFormat
    private(set) var core: MLXFast.H2OLayerCache
    /// The arrays that were assigned to `state`, until `metaState` is assigned too.
    private var loaded = [MLXArray]()

    /// An empty cache.
    package init(_ configuration: H2OConfiguration, _ format: MLXFast.H2ORowFormat) {
        H2OWarning.listens
        (self.configuration, self.format) = (configuration, format)
        core = MLXFast.H2OLayerCache(policy: configuration.policy, format: format)
        configuration.warnOnce()
    }

    private init(copying other: H2OKVCache) {
        (configuration, format, core) = (other.configuration, other.format, other.core.copy())
    }

    /// A cache from the ``state`` and ``metaState`` of another.
    ///
    /// - Parameter archive: the conversation's folder, in which the layer's folder has the same
    ///   name as when the cache was saved; nil for an archive in memory. The folder that is named
    ///   in `metaState` is never opened
    /// - Throws: ``H2OCacheError`` if the values are not valid for an H2O cache
    package init(state: [MLXArray], metaState: [String], archive: URL? = nil) throws {
        H2OWarning.listens
        (configuration, format, core) = try Self.restored(state, metaState, archive)
    }

    private static func restored(
        _ state: [MLXArray], _ metaState: [String], _ archive: URL?
    ) throws -> (H2OConfiguration, MLXFast.H2ORowFormat, MLXFast.H2OLayerCache) {
        let core = try H2OCacheError.ofSaved {
            try MLXFast.H2OLayerCache(
                restoring: state, header: metaState.joined(separator: "\n"),
                folder: archive?.path(percentEncoded: false))
        }
        let (policy, format) = core.configuration
        return (try H2OConfiguration(policy, recall: H2ORecall.of(policy)), format, core)
    }

    package var kind: Kind { Kind(format) }

    public var maxSize: Int? { configuration.evicts ? configuration.maxSize : nil }

    /// Tokens seen so far: the position of the next one. Only ``trim(_:)`` lowers it.
    public var offset: Int { core.offset }

    public var ropeOffset: RoPEOffset { .scalar(offset) }

    /// Rows in use. They exceed C only between an ``update(keys:values:)`` with several tokens
    /// and their attention.
    package var length: Int { core.length }

    /// float32 `[B, Hkv, C]`, -1 where a row was not yet observed; nil while empty, and without a
    /// ledger.
    package var scores: MLXArray? { core.ledger?.scores }

    /// int32 `[B, Hkv, C]`, -1 where a row is empty; nil while the cache is empty, and without a
    /// ledger.
    package var positions: MLXArray? { core.ledger?.positions }

    /// Figures of recall; nil without recall.
    package var recalled: H2ORecallStatistics? {
        let numbers = core.numbers
        return numbers.archiveBytes.map {
            H2ORecallStatistics(
                reads: numbers.archiveReads, archiveBytes: $0, sketchBytes: numbers.sketchBytes)
        }
    }

    /// Bytes of the buffers of keys and values, including unused rows.
    package var rowBytes: Int { core.numbers.rowBytes }

    /// Bytes of the ledger: scores, positions and victims.
    package var ledgerBytes: Int { core.numbers.ledgerBytes }

    public func attend(
        queries: MLXArray, keys: MLXArray, values: MLXArray, scale: Float,
        mask: MLXFast.ScaledDotProductAttentionMaskMode
    ) -> MLXArray {
        core.attend(queries: queries, keys: keys, values: values, scale: scale, mask: mask)
    }

    public func update(keys: MLXArray, values: MLXArray) -> (MLXArray, MLXArray) {
        core.write(keys: keys, values: values)
    }

    /// Finishes an ``update(keys:values:)`` whose attention was computed elsewhere: gives the new
    /// tokens their positions, and evicts the rows beyond C. The next write does this too.
    package func settle() { core.settle() }

    public var isTrimmable: Bool { core.isTrimmable }

    /// Whether tokens can still be removed after `positions` more tokens are written.
    public func isTrimmable(after positions: Int) -> Bool {
        isTrimmable && offset + positions <= configuration.maxSize
    }

    @discardableResult
    public func trim(_ n: Int) -> Int { core.trim(n) }

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
                H2OErrorText.slidingWindow(windowSize: "\(windowSize)"))
            return .array(createCausalMask(n: n, offset: length, windowSize: windowSize))
        }
        if n == 1 { return .none }
        return returnArray ? .array(createCausalMask(n: n, offset: length)) : .causal
    }

    public func copy() -> any KVCache { H2OKVCache(copying: self) }

    /// The arrays to evaluate so that the whole cache is evaluated: the ledger, which is
    /// computed from the rows. The rows are left out, because the next write would copy rows
    /// that a caller might hold. While tokens have no attention yet, the ledger is not computed
    /// from the newest rows, so the rows are included. A cache without a ledger has only rows,
    /// which the next write does not change.
    public func innerState() -> [MLXArray] {
        guard configuration.evicts else { return core.rows }
        let ledger = core.ledger?.arrays ?? []
        guard core.unattended > 0 else { return ledger }
        core.share()
        return core.rows + ledger
    }

    public var state: [MLXArray] {
        get { core.arrays() }
        set { loaded = newValue }
    }

    /// The text that belongs to ``state``, which the core writes and reads. Setting it restores
    /// the cache from the arrays that were set before.
    public var metaState: [String] {
        get { [core.header] }
        set {
            do {
                (configuration, format, core) = try Self.restored(loaded, newValue, nil)
                loaded = []
            } catch {
                // A setter cannot throw, so this ends the process, as upstream's caches do.
                fatalError(error.localizedDescription)
            }
        }
    }

    /// Continues the archive in the folder that `other` names. Does nothing if it names none.
    ///
    /// - Throws: ``H2OCacheError/archive(_:)`` or `MLXError`
    func moveArchive(to other: H2OConfiguration) throws {
        guard let store = other.recall?.store else { return }
        try H2OCacheError.ofCore { try core.moveArchive(to: store) }
        if core.numbers.archiveBytes != nil {
            configuration = try configuration.archiving(in: store)
        }
    }
}

extension [any KVCache] {
    /// The H2O caches among these caches and in their lists, in order.
    package var evicting: [H2OKVCache] { flatMap(\.leaves).compactMap { $0 as? H2OKVCache } }

    /// Copies the caches of a conversation for another one; see
    /// ``MLXLMCommon/KVCache/copied(archive:)``.
    ///
    /// - Throws: ``H2OCacheError/archive(_:)``
    package func copied(archive: URL? = nil) throws -> [any KVCache] {
        try map { try $0.copied(archive: archive) }
    }
}

extension KVCache {
    /// Copies this cache after settling its written tokens. Its rows are copied only when one of
    /// the two caches writes next. Both caches share the segments of an archive in memory.
    ///
    /// - Parameter archive: for an archive in files, a folder of the other conversation with
    ///   the same files, where the copy continues it. nil keeps newly archived tokens in memory
    /// - Throws: ``H2OCacheError/archive(_:)`` if the folder does not contain the archive
    package func copied(archive: URL? = nil) throws -> any KVCache {
        if let own = self as? H2OKVCache {
            own.settle()
            guard let archive, own.core.numbers.isInFiles else { return own.copy() }
            return try H2OKVCache(state: own.state, metaState: own.metaState, archive: archive)
        }
        guard let list = copy() as? CacheList else { return copy() }
        var failure: (any Error)?
        list.mapChildren { child in
            do {
                return try child.copied(archive: archive)
            } catch {
                failure = error
                return child
            }
        }
        if let failure { throw failure }
        return list
    }

    /// Bytes of its buffers. The archive is not counted, because copies share its segments.
    package var byteCount: Int {
        if self is CacheList { return leaves.map(\.byteCount).reduce(0, +) }
        if let own = self as? H2OKVCache { return own.rowBytes + own.ledgerBytes }
        return innerState().map(\.nbytes).reduce(0, +)
    }

    /// The caches in a layer's list, or only this cache if it is not a list.
    package var leaves: [any KVCache] {
        guard let list = self as? CacheList else { return [self] }
        var leaves = [any KVCache]()
        list.mapChildren { child in
            leaves.append(child)
            return child
        }
        return leaves
    }
}

/// Figures of recall and its archive.
package struct H2ORecallStatistics: Hashable, Codable, Sendable {
    /// Archived rows that were read, all heads together.
    package let reads: Int
    /// Bytes of the archive now, in memory or in files.
    package let archiveBytes: Int
    /// Bytes of the sketch of the archived keys, in memory.
    package let sketchBytes: Int
}

extension H2ORecallStatistics {
    /// Adds up the figures of all caches with recall; nil if there is none.
    package init?(_ caches: [H2OKVCache]) {
        let all = caches.compactMap(\.recalled)
        guard !all.isEmpty else { return nil }
        self.init(
            reads: all.map(\.reads).reduce(0, +),
            archiveBytes: all.map(\.archiveBytes).reduce(0, +),
            sketchBytes: all.map(\.sketchBytes).reduce(0, +))
    }

    /// The reads since earlier figures, with the bytes of `self`.
    package func since(_ earlier: H2ORecallStatistics?) -> H2ORecallStatistics {
        H2ORecallStatistics(
            reads: reads - (earlier?.reads ?? 0), archiveBytes: archiveBytes,
            sketchBytes: sketchBytes)
    }

    /// The sum of the reads, with the bytes of `later`.
    package static func + (earlier: Self, later: Self) -> Self {
        H2ORecallStatistics(
            reads: earlier.reads + later.reads, archiveBytes: later.archiveBytes,
            sketchBytes: later.sketchBytes)
    }
}
