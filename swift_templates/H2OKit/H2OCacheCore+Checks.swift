import MLX

extension H2OCacheCore {
    /// The largest count of tokens: positions are 32-bit.
    static let mostTokens = Int(Int32.max) - 1

    /// Checks the arrays restored before against each other and the settings: a file may be
    /// damaged, or made to harm. The value's head dim follows from the rows.
    ///
    /// - Throws: ``H2OCacheError``, `MLXError`
    mutating func checkRestored() throws {
        guard let rows, let ledger else { return }
        let keyDim = ledger.keySum.dim(2)
        let derived = format.valueDim(width: rows.pool.dim(3), keyDim: keyDim)
        guard let derived, keyDim > 0, rows.pool.dim(0) > 0, rows.pool.dim(1) > 0 else {
            throw H2OCacheError.damaged(reason: "its rows \(rows.pool.shape) hold no such keys")
        }
        valueDim = derived
        if let ring = rows.ring, let recentBits = format.recentBits {
            var newest = format
            (newest.keyBits, newest.valueBits, newest.recentBits) = (recentBits, recentBits, nil)
            guard newest.valueDim(width: ring.dim(3), keyDim: keyDim) == derived,
                newest.fits(ring.dtype)
            else {
                throw H2OCacheError.damaged(reason: "its ring \(ring.shape) has other rows")
            }
        }
        let dtypes: [DType] = [.float32, .float16, .bfloat16]
        let isDense = !hasRing && format.keyBits == 16  // in the dtype of the keys
        guard isDense ? dtypes.contains(rows.pool.dtype) : format.fits(rows.pool.dtype) else {
            throw H2OCacheError.damaged(reason: "its rows are \(rows.pool.dtype)")
        }
        let heads = Array(rows.pool.shape.prefix(2))
        let entries = heads + [configuration.maxSize]
        try check(ledger.scores, "scores", .float32, entries)
        try check(ledger.positions, "positions", .int32, entries)
        try check(ledger.novelty, "novelty", .float32, entries)
        try check(ledger.keySum, "key_sum", .float32, heads + [keyDim])
        try check(ledger.victim, "victim", .int32, heads)
        if let held = ledger.held { try check(held, "held", .bool, entries) }
        try withError { eval(ledger.arrays) }
        let scores = ledger.scores.asArray(Float.self)
        guard scores.allSatisfy({ $0.isFinite && ($0 >= 0 || $0 == -1) }),
            ledger.novelty.asArray(Float.self).allSatisfy(\.isFinite),
            ledger.keySum.asArray(Float.self).allSatisfy(\.isFinite)
        else {
            throw H2OCacheError.damaged(reason: "it has numbers that no cache has")
        }
        let isFull = offset - pending >= configuration.maxSize
        let victims = ledger.victim.asArray(Int32.self)
        guard victims.allSatisfy({ isFull ? 0 ..< configuration.maxSize ~= Int($0) : $0 == -1 })
        else {
            throw H2OCacheError.damaged(reason: "its next victim is none of its rows")
        }
        let positions = ledger.positions.asArray(Int32.self).map(Int.init)
        try checkPositions(positions)
        let held = ledger.held?.asArray(Bool.self) ?? []
        guard zip(held, positions).allSatisfy({ !$0 || $1 >= 0 }) else {
            throw H2OCacheError.damaged(reason: "it holds rows that are empty")
        }
    }

    /// Each token that was seen has one row at most, in the ring the newest ones their slots.
    private func checkPositions(_ positions: [Int]) throws {
        let before = offset - pending, size = configuration.maxSize
        let slots = hasRing ? configuration.recentBudget : 0
        let older = max(0, before - slots)
        let ring = (0 ..< slots).map { slot in
            slot < before ? before - 1 - (before - 1 - slot) % slots : -1
        }
        for start in stride(from: 0, to: positions.count, by: size) {
            let pool = positions[start ..< start + size - slots]
            let fits: Bool
            if older <= pool.count {  // nothing was evicted; what left a ring is in any order
                let used = pool.prefix(older)
                fits =
                    (hasRing ? Set(used) == Set(0 ..< older) : used.elementsEqual(0 ..< older))
                    && pool.dropFirst(older).allSatisfy { $0 == -1 }
            } else {
                fits = Set(pool).count == pool.count && pool.allSatisfy { 0 ..< older ~= $0 }
            }
            guard fits, positions[start + size - slots ..< start + size].elementsEqual(ring) else {
                throw H2OCacheError.damaged(
                    reason: "its positions are not those of \(before) tokens, each once")
            }
        }
    }

    private func check(
        _ array: MLXArray, _ name: String, _ dtype: DType, _ shape: [Int]
    ) throws {
        guard array.dtype == dtype, array.shape == shape else {
            throw H2OCacheError.damaged(
                reason: "its \(name) are \(array.dtype) \(array.shape), not \(dtype) \(shape)")
        }
    }
}

extension MLXFast.H2ORowFormat {
    /// Dv of the pool's rows of `width` elements with keys of `keyDim`; nil if none fits.
    func valueDim(width: Int, keyDim: Int) -> Int? {
        if keyBits == 16 { return width > keyDim ? width - keyDim : nil }
        let both = 2 * 8 * (dtype == .float32 ? 4 : 2)  // bits of a scale and a bias
        let left = 32 * width - keyDim / groupSize * (keyBits * groupSize + both)
        let group = valueBits * groupSize + both
        guard keyDim % groupSize == 0, left > 0, left % group == 0 else { return nil }
        return left / group * groupSize
    }

    /// Whether a buffer of such rows has this dtype.
    func fits(_ buffer: DType) -> Bool {
        buffer == (keyBits == 16 ? dtype : .uint32)
    }
}
