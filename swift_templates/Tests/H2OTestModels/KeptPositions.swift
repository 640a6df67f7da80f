import H2OKit
import H2OSessions
import MLX
import MLXLMCommon

/// The positions that the caches of a conversation keep.
package struct KeptPositions: Hashable, Sendable {
    /// The number of positions so far, including evicted ones.
    package let count: Int
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
    /// with an H2O cache; 0...1. The array is as long as the conversation.
    package var shares: [Float] {
        (0 ..< count).map { Float(rows[$0, default: 0]) / Float(heads) }
    }
}

extension H2OSession {
    /// The positions that the caches keep now.
    package var keptPositions: KeptPositions {
        get async { await conversation.keptPositions }
    }
}

extension Conversation {
    fileprivate var keptPositions: KeptPositions { KeptPositions(caches) }
}
