import Foundation
import MLX
import MLXLMCommon

/// What the H2O caches share: they differ in how their rows are stored.
///
/// In the shapes: B batch, Hq query heads, Hkv KV heads, L new tokens, N rows in use,
/// C the configuration's `maxSize`, Dk and Dv the head dims of keys and values.
protocol H2OCacheImplementation: AnyObject, H2OScoreTracking {
    /// A format of this kind of cache; a saved one says which it has.
    static var blankFormat: MLXFast.H2ORowFormat { get }

    var core: H2OCacheCore { get set }

    init(_ core: H2OCacheCore)
}

extension H2OCacheImplementation {
    public var configuration: H2OConfiguration { core.configuration }

    public var maxSize: Int? { core.configuration.maxSize }

    /// Tokens seen so far: the position of the next one. Only ``trim(_:)`` lowers it.
    public var offset: Int { core.offset }

    public var ropeOffset: RoPEOffset { .scalar(core.offset) }

    public var length: Int { core.length }

    public var scores: MLXArray? { core.ledger?.scores }

    public var positions: MLXArray? { core.ledger?.positions }

    public var held: MLXArray? { core.ledger?.held }

    public var recalled: H2ORecallStatistics? { core.recalled }

    public func attend(
        queries: MLXArray, keys: MLXArray, values: MLXArray, scale: Float,
        mask: MLXFast.ScaledDotProductAttentionMaskMode
    ) -> MLXArray {
        core.attend(queries: queries, keys: keys, values: values, scale: scale, mask: mask)
    }

    public func update(keys: MLXArray, values: MLXArray) -> (MLXArray, MLXArray) {
        H2OWarning.scoresDoNotArrive
        core.write(keys: keys, values: values)
        return core.fetch(keyDim: keys.dim(3))
    }

    public var isTrimmable: Bool { core.isTrimmable }

    /// Whether tokens could still be taken back after so many more.
    public func isTrimmable(after positions: Int) -> Bool {
        core.isTrimmable && offset + positions <= configuration.maxSize
    }

    @discardableResult
    public func trim(_ n: Int) -> Int { core.trim(n) }

    /// The mask of `n` new tokens over the rows in use and themselves. After an eviction
    /// rows are no longer positions, so that a window cannot be served.
    public func makeMask(
        n: Int, windowSize: Int?, returnArray: Bool
    ) -> MLXFast.ScaledDotProductAttentionMaskMode {
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

    public func copy() -> any KVCache {
        Self(core.copy())
    }

    /// What to evaluate so that the whole cache is: the ledger, which follows from the rows.
    /// The rows themselves would be copied by the next write, as somebody might hold them.
    public func innerState() -> [MLXArray] {
        core.pending > 0 ? core.share() : core.ledger?.arrays ?? []
    }

    public var state: [MLXArray] {
        get { core.save() }
        set { orStop { try core.restore(newValue) } }
    }

    public var metaState: [String] {
        get { H2OCacheMetadata(core).fields(format: Self.format) }
        set { orStop { try core.restore(newValue, format: Self.format) } }
    }

    /// The core of a cache from the ``state`` and ``metaState`` of another.
    static func restored(
        _ state: [MLXArray], _ metaState: [String], archive: URL?
    ) throws -> H2OCacheCore {
        let metadata = try H2OCacheMetadata(metaState, format: format)
        var core = H2OCacheCore(metadata.configuration, blankFormat)
        try core.restore(state)
        try core.restore(metaState, format: format, archive: archive)
        return core
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
