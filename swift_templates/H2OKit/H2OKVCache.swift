import MLX
import MLXLMCommon

/// A KV cache that keeps at most C tokens a head: sinks, the newest tokens, and those
/// that attention looks at (heavy hitters).
///
/// In the shapes: B batch, Hq query heads, Hkv KV heads, L new tokens, N rows in use,
/// C the configuration's `maxSize`, Dk and Dv the head dims of keys and values.
///
/// A model that calls `attentionWithCacheUpdate` is routed to
/// ``attend(queries:keys:values:scale:mask:)``. One that calls ``update(keys:values:)``
/// and attends itself computes correctly too, but no scores arrive from it.
public final class H2OKVCache: RoutedAttentionCache, H2OScoreTracking {
    private var storage: H2OCacheStorage

    public convenience init(configuration: H2OConfiguration) {
        self.init(H2OCacheStorage(configuration: configuration))
    }

    /// - Parameters:
    ///   - maxSize: C, the rows each KV head keeps
    ///   - heavyBudget: rows for heavy hitters, nil for half of `maxSize`
    ///   - recentBudget: the newest tokens that are kept, nil for the remaining rows
    ///   - sinkSize: the first tokens, which are kept
    /// - Throws: ``H2OConfigurationError`` when the values do not fit together
    public convenience init(
        maxSize: Int, heavyBudget: Int? = nil, recentBudget: Int? = nil, sinkSize: Int = 4
    ) throws {
        let configuration = try H2OConfiguration(
            maxSize: maxSize, sinkSize: sinkSize, heavyBudget: heavyBudget,
            recentBudget: recentBudget)
        self.init(configuration: configuration)
    }

    /// A cache from the ``state`` and ``metaState`` of another.
    ///
    /// - Throws: ``H2OStateError`` when they are not those of such a cache
    public convenience init(state: [MLXArray], metaState: [String]) throws {
        var storage = H2OCacheStorage(
            configuration: try H2OCacheMetadata(metaState).configuration)
        try storage.restore(state)
        try storage.restore(metaState)
        self.init(storage)
    }

    private init(_ storage: H2OCacheStorage) {
        self.storage = storage
        if storage.configuration.recentBudget < 64 { H2OWarning.shortRecentWindow }
    }

    public var configuration: H2OConfiguration { storage.configuration }

    public var maxSize: Int? { storage.configuration.maxSize }

    /// Tokens seen so far: the position of the next one. Only ``trim(_:)`` lowers it.
    public var offset: Int { storage.offset }

    public var ropeOffset: RoPEOffset { .scalar(storage.offset) }

    /// N, the rows in use: at most C, and more only between an ``update(keys:values:)``
    /// with several tokens and what follows it.
    public var length: Int { storage.length }

    public var scores: MLXArray? { storage.ledger?.scores }

    public var positions: MLXArray? { storage.ledger?.positions }

    /// Stores the new keys and values, attends to all rows in use and scores them.
    ///
    /// - Parameters:
    ///   - queries: `[B, Hq, L, Dk]`, after RoPE
    ///   - keys: `[B, Hkv, L, Dk]`, after RoPE
    ///   - values: `[B, Hkv, L, Dv]`
    ///   - scale: factor of the logits, usually `1 / sqrt(Dk)`
    ///   - mask: what ``makeMask(n:windowSize:returnArray:)`` gave
    /// - Returns: `[B, Hq, L, Dv]` in the queries' dtype
    public func attend(
        queries: MLXArray, keys: MLXArray, values: MLXArray, scale: Float,
        mask: MLXFast.ScaledDotProductAttentionMaskMode
    ) -> MLXArray {
        storage.write(keys: keys, values: values)
        return storage.settle(queries: queries, scale: scale, mask: mask) ?? .mlxNone
    }

    /// Stores the new keys and values and returns all rows in use.
    ///
    /// - Parameters:
    ///   - keys: `[B, Hkv, L, Dk]`, after RoPE
    ///   - values: `[B, Hkv, L, Dv]`
    /// - Returns: keys `[B, Hkv, N, Dk]` and values `[B, Hkv, N, Dv]`, the new ones
    ///   last unless a single token replaced an evicted one
    public func update(keys: MLXArray, values: MLXArray) -> (MLXArray, MLXArray) {
        H2OWarning.scoresDoNotArrive
        let rows = storage.write(keys: keys, values: values)
        storage.isShared = true
        let keyDim = keys.dim(3)
        return (rows[.ellipsis, ..<length, ..<keyDim], rows[.ellipsis, ..<length, keyDim...])
    }

    /// Ends an ``update(keys:values:)`` whose attention was computed elsewhere: the new
    /// tokens get their positions, and what overflows C is evicted. The next write does
    /// this by itself.
    public func settle() {
        storage.settle()
    }

    /// False from the first eviction on.
    public var isTrimmable: Bool { storage.isComplete }

    @discardableResult
    public func trim(_ n: Int) -> Int { storage.trim(n) }

    /// The mask of `n` new tokens over the rows in use and themselves. After an eviction
    /// rows are no longer positions, so that a window cannot be served.
    public func makeMask(
        n: Int, windowSize: Int?, returnArray: Bool
    ) -> MLXFast.ScaledDotProductAttentionMaskMode {
        if n == 1 { return .none }
        let length = min(offset, configuration.maxSize)
        if let windowSize, windowSize < length + n {
            precondition(
                isTrimmable,
                "H2OKVCache has evicted tokens and cannot serve a window of \(windowSize) "
                    + "positions. Give layers with a sliding window a RotatingKVCache.")
            return .array(createCausalMask(n: n, offset: length, windowSize: windowSize))
        }
        return returnArray ? .array(createCausalMask(n: n, offset: length)) : .causal
    }

    /// An independent cache with the same content.
    public func copy() -> any KVCache {
        _ = storage.share()
        return H2OKVCache(storage)
    }

    public func innerState() -> [MLXArray] { storage.share() }

    /// Rows `[B, Hkv, N, Dk + Dv]`, scores, positions and novelty `[B, Hkv, C]`, key sum
    /// `[B, Hkv, Dk]` and victim `[B, Hkv]`; empty while the cache is empty.
    public var state: [MLXArray] {
        get { storage.save() }
        set { orStop { try storage.restore(newValue) } }
    }

    /// Format, offset, rows in use, tokens whose attention is outstanding, and
    /// the configuration as JSON. To be set after ``state``.
    public var metaState: [String] {
        get { storage.metadata.fields }
        set { orStop { try storage.restore(newValue) } }
    }

    /// Ends the process where a setter cannot throw, as upstream's caches do.
    private func orStop(_ body: () throws -> Void) {
        do {
            try body()
        } catch {
            fatalError(error.localizedDescription)
        }
    }
}
