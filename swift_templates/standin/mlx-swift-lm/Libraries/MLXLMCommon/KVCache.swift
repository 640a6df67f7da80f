// Stands in for KVCache of mlx-swift-lm 3.31.4: the protocol and the causal mask.

import Foundation
import MLX

/// The position of the first new token, for RoPE.
public enum RoPEOffset {
    case scalar(Int)
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

    /// The arrays that a file of this cache holds.
    var state: [MLXArray] { get set }

    /// The strings that a file of this cache holds.
    var metaState: [String] { get set }

    var isTrimmable: Bool { get }

    /// Drops the newest `n` tokens; returns how many it dropped.
    @discardableResult
    func trim(_ n: Int) -> Int

    /// The mask for the attention of `n` new tokens.
    func makeMask(
        n: Int, windowSize: Int?, returnArray: Bool
    ) -> MLXFast.ScaledDotProductAttentionMaskMode

    /// A cache that shares nothing with this one.
    func copy() -> any KVCache

    func prepare(lengths: [Int]?)

    func prepare(lengths: MLXArray?)

    func finalize()
}

extension KVCache {
    public var ropeOffset: RoPEOffset { .scalar(offset) }

    public func prepare(lengths: [Int]?) {}

    public func prepare(lengths: MLXArray?) {}

    public func finalize() {}
}

/// A cache that upstream's own quantized attention reads.
public protocol QuantizedKVCacheProtocol: KVCache {
    var groupSize: Int { get }
    var bits: Int { get }
}

/// Which of `offset + n` rows each of the `n` last tokens sees.
///
/// - Parameters:
///   - n: new tokens
///   - offset: tokens before them
///   - windowSize: how many rows, its own included, a token sees back
///   - lengths: int32 `[B]`, the rows in use of each sequence
/// - Returns: bool `[n, offset + n]`, or `[B, 1, n, offset + n]` with `lengths`
public func createCausalMask(
    n: Int,
    offset: Int,
    windowSize: Int? = nil,
    lengths: MLXArray? = nil
) -> MLXArray {
    let total = offset + n
    func seen(upTo length: Int) -> [Bool] {
        (offset ..< total).flatMap { query in
            (0 ..< total).map { row in
                row <= query && row < length && query < row + (windowSize ?? total)
            }
        }
    }
    guard let lengths else { return MLXArray(seen(upTo: total), [n, total]) }
    let perSequence = lengths.asArray(Int32.self)
    return MLXArray(perSequence.flatMap { seen(upTo: Int($0)) }, [perSequence.count, 1, n, total])
}
