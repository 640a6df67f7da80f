import H2OKit
import MLX
import MLXLMCommon

/// The positions that the caches keep. Takes memory only for kept positions, however long the
/// conversation is.
public struct H2OKeptPositions: Hashable, Sendable {
    /// The number of positions so far, including evicted ones.
    public let count: Int
    /// The number of KV heads of all layers with an H2O cache.
    private let heads: Int
    /// The numbers of kept rows, by position.
    private let rows: [Int: Int]

    init(_ caches: [any KVCache]) {
        let evicting = caches.evicting.filter(\.configuration.evicts)
        count = evicting.map(\.offset).max() ?? 0
        var (rows, heads) = ([Int: Int](), 0)
        for cache in evicting {
            guard let positions = cache.positions else { continue }
            heads += positions.dim(0) * positions.dim(1)
            for position in positions.asArray(Int32.self) where position >= 0 {
                rows[Int(position), default: 0] += 1
            }
        }
        (self.rows, self.heads) = (rows, heads)
    }

    /// For each position, from 0 to the newest: the share of KV heads that keep it, over all layers
    /// with an H2O cache; 0...1. The array is as long as the conversation; for a drawing, use
    /// ``shares(in:)``.
    public var shares: [Float] { means(count) }

    /// The mean share of KV heads that keep the positions of a range, for each of at most `parts`
    /// equal ranges. For a drawing that is `parts` points wide.
    public func shares(in parts: Int) -> [Float] { means(parts) }

    /// The mean share of KV heads that keep a range of positions.
    func share(of positions: Range<Int>) -> Float {
        let all = heads * positions.count
        guard all > 0 else { return 0 }
        return Float(positions.reduce(0) { $0 + (rows[$1] ?? 0) }) / Float(all)
    }

    private func means(_ parts: Int) -> [Float] {
        let parts = parts > 0 ? min(parts, count) : count
        var sums = [Int](repeating: 0, count: parts)
        for (position, kept) in rows where position < count {
            // The part that contains the position or begins at it.
            sums[((position + 1) * parts - 1) / count] += kept
        }
        return sums.enumerated().map { part, sum in
            let length = (part + 1) * count / parts - part * count / parts
            return Float(sum) / Float(heads * length)
        }
    }
}
