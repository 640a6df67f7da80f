import MLX

/// The masks of the two parts in which a chunk is taken when rows are recalled.
extension MLXFast.ScaledDotProductAttentionMaskMode {
    /// That of the first `count` of `tokens` new tokens. A single one sees all rows: the cache
    /// is full then.
    func first(_ count: Int, of tokens: Int) -> Self {
        guard count > 1 else { return .none }
        guard let mask else { return .causal }
        let columns = mask.dim(-1) - (tokens - count)
        return .array(mask.forQueries(0 ..< count)[.ellipsis, 0 ..< columns])
    }

    /// That of the last `count` tokens, which see all `rows` older rows: rows are in no order
    /// by which they could be told apart.
    func last(_ count: Int, over rows: Int) -> Self {
        guard count > 1 else { return .none }
        guard let own = amongLast(count).mask else { return .causal }
        let shape = own.shape.dropLast() + [rows]
        let older =
            own.dtype == .bool
            ? MLXArray.ones(shape, dtype: .bool) : MLXArray.zeros(shape, dtype: own.dtype)
        return .array(concatenated([older, own], axis: -1))
    }

    /// What the last `count` tokens see of each other.
    func amongLast(_ count: Int) -> Self {
        guard count > 1 else { return .none }
        guard let mask else { return .causal }
        let (queries, columns) = (mask.dim(-2), mask.dim(-1))
        return .array(
            mask.forQueries(queries - count ..< queries)[.ellipsis, columns - count ..< columns])
    }
}

extension MLXArray {
    /// These of the queries of a mask `[..., L, N]`, or its one row if that is for all queries.
    fileprivate func forQueries(_ queries: Range<Int>) -> MLXArray {
        dim(-2) == 1 ? self : self[.ellipsis, queries, 0...]
    }

    /// These of the new tokens' queries, keys or values `[B, H, L, D]`.
    func tokens(_ range: Range<Int>) -> MLXArray {
        range == 0 ..< dim(2) ? self : self[.ellipsis, range, 0...]
    }
}
