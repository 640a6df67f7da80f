// Stands in for the cache classes of mlx-swift-lm 3.31.4 that models make: which there
// are and what a file of them holds, not what they do with keys and values.

import MLX

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
        fatalError("a class of caches says how it is copied")
    }

    fileprivate func filled(from other: BaseKVCache) -> any KVCache {
        (offset, state, metaState) = (other.offset, other.state, other.metaState)
        return self
    }
}

/// All tokens: keys and values `[B, Hkv, T, D]`.
public class KVCacheSimple: BaseKVCache {
    public override init() {}

    public override var isTrimmable: Bool { true }

    public override func copy() -> any KVCache { KVCacheSimple().filled(from: self) }
}

/// The tokens of a sliding window.
public class RotatingKVCache: BaseKVCache {
    private let maxCacheSize: Int

    public override var maxSize: Int? { maxCacheSize }

    public init(maxSize: Int, keep: Int = 0, step: Int = 256) {
        maxCacheSize = maxSize
        super.init()
        metaState = ["\(keep)", "\(maxSize)", "\(step)", "0", "0"]
    }

    public override func copy() -> any KVCache {
        RotatingKVCache(maxSize: maxCacheSize).filled(from: self)
    }
}

/// The arrays of a recurrent layer.
public class ArraysCache: BaseKVCache {
    public init(size: Int, leftPadding: [Int]? = nil) {}

    public override func copy() -> any KVCache { ArraysCache(size: state.count).filled(from: self) }
}

public class MambaCache: ArraysCache {
    public init(leftPadding: [Int]? = nil) {
        super.init(size: 2, leftPadding: leftPadding)
    }

    public override func copy() -> any KVCache { MambaCache().filled(from: self) }
}

/// The caches of a layer that has several.
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

public func canTrimPromptCache(_ cache: [KVCache]) -> Bool {
    cache.allSatisfy { $0.isTrimmable }
}
