import H2OKit
import MLX
import MLXLMCommon

/// Which positions the caches keep.
public struct H2OKeptPositions: Hashable, Sendable {
    /// For each position, from 0 to the newest: the share of KV heads that keep it, over all
    /// layers with such a cache; 0...1.
    public let shares: [Float]
    /// The share of KV heads in which the last recall chose the position; 0...1, at most that
    /// in ``shares``.
    public let recalled: [Float]

    init(_ caches: [any KVCache]) {
        let tracking = caches.compactMap { $0 as? any H2OScoreTracking }
        let newest = tracking.map(\.offset).max() ?? 0
        var (kept, held) = (PositionCounts(newest), PositionCounts(newest))
        var heads = 0
        for cache in tracking {
            guard let positions = cache.positions else { continue }
            heads += positions.dim(0) * positions.dim(1)
            let all = positions.asArray(Int32.self)
            kept.add(all)
            if let isHeld = cache.held?.asArray(Bool.self) {
                held.add(zip(all, isHeld).lazy.filter(\.1).map(\.0))
            }
        }
        (shares, recalled) = (kept.shares(of: heads), held.shares(of: heads))
    }

    /// The mean share in each of at most `count` equal ranges of positions, for a drawing that
    /// is `count` points wide.
    public func stretches(_ count: Int) -> [Float] { shares.means(count) }

    /// The same of ``recalled``.
    public func recalledStretches(_ count: Int) -> [Float] { recalled.means(count) }
}

/// How often each position occurs.
private struct PositionCounts {
    private var counts: [Float]

    init(_ positions: Int) { counts = [Float](repeating: 0, count: positions) }

    mutating func add(_ positions: some Sequence<Int32>) {
        for position in positions where counts.indices.contains(Int(position)) {
            counts[Int(position)] += 1
        }
    }

    func shares(of heads: Int) -> [Float] { counts.map { $0 / Float(max(1, heads)) } }
}

extension [Float] {
    fileprivate func means(_ ranges: Int) -> [Float] {
        guard ranges > 0, count > ranges else { return self }
        return (0 ..< ranges).map { index in
            let range = self[index * count / ranges ..< (index + 1) * count / ranges]
            return range.reduce(0, +) / Float(range.count)
        }
    }
}
