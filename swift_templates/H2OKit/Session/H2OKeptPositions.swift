import MLX
import MLXLMCommon

/// Which positions the caches keep.
public struct H2OKeptPositions: Hashable, Sendable {
    /// For each position, from 0 to the newest: the share of KV heads that keep it, over all
    /// layers with such a cache; 0...1.
    public let shares: [Float]

    init(_ caches: [any KVCache]) {
        let tracking = caches.compactMap { $0 as? any H2OScoreTracking }
        var counts = [Float](repeating: 0, count: tracking.map(\.offset).max() ?? 0)
        var heads = 0
        for positions in tracking.compactMap(\.positions) {
            heads += positions.dim(0) * positions.dim(1)
            for position in positions.asArray(Int32.self)
            where counts.indices.contains(Int(position)) {
                counts[Int(position)] += 1
            }
        }
        shares = counts.map { $0 / Float(max(1, heads)) }
    }

    /// The mean share in each of at most `count` equal ranges of positions, for a drawing that
    /// is `count` points wide.
    public func stretches(_ count: Int) -> [Float] {
        guard count > 0, shares.count > count else { return shares }
        return (0 ..< count).map { index in
            let stretch = shares[
                index * shares.count / count ..< (index + 1) * shares.count / count]
            return stretch.reduce(0, +) / Float(stretch.count)
        }
    }
}
