import MLX

/// What a cache with recall has besides rows and ledger.
struct H2ORecallState {
    let settings: H2ORecall
    /// Key, value and novelty of all tokens seen.
    var archive: MLXFast.H2OArchive
    /// Single tokens since the last recall.
    var since = 0
    var statistics = H2ORecallStatistics()
}

extension H2ORecallState {
    /// Elements that share a scale and a bias in the archive: the cache's number, or 32 where
    /// that does not divide the head dims; nil where neither does and the archive has groups.
    static func groupSize(_ own: Int, dims: [Int], bits: Int) -> Int? {
        let fits = [own, 32].first { group in dims.allSatisfy { $0 % group == 0 } }
        return fits ?? (bits == 16 ? own : nil)
    }
}
