// A stand-in for the caches of mlx-swift-lm: their protocol, the attention function with the
// edit that routes to a cache, and the classes of caches. These have the state that a file contains,
// but do not store keys and values.

import Foundation
import MLX

/// The position of the first new token, for RoPE.
public enum RoPEOffset {
    case scalar(Int)
    /// One position for each sequence of a batch.
    case batch(MLXArray)
}

/// Keys and values of the tokens seen so far.
public protocol KVCache: Evaluatable {
    /// Tokens seen so far.
    var offset: Int { get }

    var ropeOffset: RoPEOffset { get }

    /// The most tokens that are kept, if there is a limit.
    var maxSize: Int? { get }

    /// Stores new keys and values and returns all of them.
    func update(keys: MLXArray, values: MLXArray) -> (MLXArray, MLXArray)

    /// The arrays that a file of this cache contains.
    var state: [MLXArray] { get set }

    /// The strings that a file of this cache contains.
    var metaState: [String] { get set }

    var isTrimmable: Bool { get }

    /// Drops the newest `n` tokens; returns the number of dropped tokens.
    @discardableResult
    func trim(_ n: Int) -> Int

    /// The mask for the attention of `n` new tokens.
    func makeMask(
        n: Int, windowSize: Int?, returnArray: Bool
    ) -> MLXFast.ScaledDotProductAttentionMaskMode

    /// Returns an independent copy.
    func copy() -> any KVCache
}

extension KVCache {
    public var ropeOffset: RoPEOffset { .scalar(offset) }
}

/// Which of `offset + n` rows each of the `n` last tokens sees.
///
/// - Parameters:
///   - n: new tokens
///   - offset: tokens before them
///   - windowSize: the number of newest rows that a token sees, including its own
/// - Returns: bool `[n, offset + n]`
public func createCausalMask(n: Int, offset: Int, windowSize: Int? = nil) -> MLXArray {
    let total = offset + n
    let seen = (offset ..< total).flatMap { query in
        (0 ..< total).map { row in row <= query && query < row + (windowSize ?? total) }
    }
    return MLXArray(seen, [n, total])
}

/// Stores new keys and values in the cache, if there is one, and computes attention over all rows.
///
/// - Parameters:
///   - queries: `[B, Hq, L, D]`
///   - keys: `[B, Hkv, L, D]`
///   - values: `[B, Hkv, L, D]`
///   - cache: the cache that stores the new tokens; nil for none
///   - scale: factor of the logits
///   - mask: which rows each query sees
/// - Returns: the output, `[B, Hq, L, D]`
public func attentionWithCacheUpdate(
    queries: MLXArray,
    keys: MLXArray,
    values: MLXArray,
    cache: KVCache?,
    scale: Float,
    mask: MLXFast.ScaledDotProductAttentionMaskMode = .none
) -> MLXArray {
    if let routed = cache as? RoutedAttentionCache {
        return routed.attend(queries: queries, keys: keys, values: values, scale: scale, mask: mask)
    }
    let (keys, values) = cache?.update(keys: keys, values: values) ?? (keys, values)
    return MLXFast.scaledDotProductAttention(
        queries: queries, keys: keys, values: values, scale: scale, mask: mask)
}

open class BaseKVCache: KVCache {
    public var offset = 0
    public var maxSize: Int? { nil }
    open var state = [MLXArray]()
    open var metaState = [""]
    open var isTrimmable: Bool { false }

    public func innerState() -> [MLXArray] { state }

    open func update(keys: MLXArray, values: MLXArray) -> (MLXArray, MLXArray) {
        fatalError("the stand-in's caches store nothing")
    }

    @discardableResult
    open func trim(_ n: Int) -> Int { 0 }

    open func makeMask(
        n: Int, windowSize: Int?, returnArray: Bool
    ) -> MLXFast.ScaledDotProductAttentionMaskMode { n == 1 ? .none : .causal }

    open func copy() -> any KVCache {
        fatalError("a subclass must implement copy()")
    }

    fileprivate func filled(from other: BaseKVCache) -> any KVCache {
        (offset, state, metaState) = (other.offset, other.state, other.metaState)
        return self
    }
}

/// A cache of all T tokens: keys and values `[B, Hkv, T, D]`.
public class KVCacheSimple: BaseKVCache {
    public override init() {}

    public override var isTrimmable: Bool { true }

    public override func copy() -> any KVCache { KVCacheSimple().filled(from: self) }
}

/// A cache of the tokens in a sliding window.
public class RotatingKVCache: BaseKVCache {
    private let maxCacheSize: Int

    public override var maxSize: Int? { maxCacheSize }

    public init(maxSize: Int, keep: Int = 0, step: Int = 256) {
        maxCacheSize = maxSize
        super.init()
        metaState = ["\(keep)", "\(maxSize)", "\(step)", "0", "0", "modelNative"]
    }

    public override func copy() -> any KVCache {
        RotatingKVCache(maxSize: maxCacheSize).filled(from: self)
    }
}

/// A cache of the arrays of a recurrent layer.
public class ArraysCache: BaseKVCache {
    public init(size: Int) {}

    public override func copy() -> any KVCache { ArraysCache(size: state.count).filled(from: self) }
}

public class MambaCache: ArraysCache {
    public init() { super.init(size: 2) }

    public override func copy() -> any KVCache { MambaCache().filled(from: self) }
}

/// The list of caches of a layer that has several.
public class CacheList: BaseKVCache {
    private var caches: [KVCache]

    public init(_ caches: KVCache...) {
        self.caches = caches
    }

    init(caches: [KVCache]) {
        self.caches = caches
    }

    public override func copy() -> any KVCache { CacheList(caches: caches.map { $0.copy() }) }

    public subscript(index: Int) -> KVCache { caches[index] }

    /// Replaces every cache that is not itself a list.
    public func mapChildren(_ transform: (KVCache) -> KVCache) {
        caches = caches.map { child in
            if let list = child as? CacheList {
                list.mapChildren(transform)
                return list
            }
            return transform(child)
        }
    }
}
