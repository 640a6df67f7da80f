import MLX

/// What a saved cache says may be damaged, or made to harm: nothing of it is used before it
/// fits together. The core bounds what it reads from arrays besides.
extension H2OCacheCore {
    /// Checks the arrays against the strings that were restored with them; evaluates the ledger.
    ///
    /// - Throws: ``H2OStateError``, `MLXError`
    func checkRestored() throws {
        guard let ledger, let rows else { return }
        try checkShapes(rows, ledger)
        try withError { eval(ledger.arrays) }
        let (scores, novelty) = (ledger.scores.asArray(Float.self), ledger.novelty)
        try require(scores.allSatisfy { $0 == -1 || $0 >= 0 && $0.isFinite }, "scores")
        try require(novelty.asArray(Float.self).allSatisfy(\.isFinite), "novelty")
        try require(ledger.keySum.asArray(Float.self).allSatisfy(\.isFinite), "key_sum")
        let victims = ledger.victim.asArray(Int32.self)
        try require(
            victims.allSatisfy { (-1 ..< Int32(configuration.maxSize)).contains($0) }, "victim")
        try checkPositions(
            ledger.positions.asArray(Int32.self), held: ledger.held?.asArray(Bool.self))
    }

    private func checkShapes(
        _ rows: MLXFast.H2ORows, _ ledger: MLXFast.H2OLedger
    ) throws {
        let (keySum, size) = (ledger.keySum, configuration.maxSize)
        try require(keySum.size > 0 && keySum.dtype == .float32, "key_sum")
        let (batch, heads) = (keySum.dim(0), keySum.dim(1))
        let entries: [(String, MLXArray?, DType)] = [
            ("scores", ledger.scores, .float32), ("positions", ledger.positions, .int32),
            ("novelty", ledger.novelty, .float32), ("held", ledger.held, .bool),
        ]
        for (name, array, dtype) in entries {
            guard let array else { continue }
            try require(array.shape == [batch, heads, size] && array.dtype == dtype, name)
        }
        try require(
            ledger.victim.shape == [batch, heads] && ledger.victim.dtype == .int32, "victim")
        let floats: [DType] = [.float32, .float16, .bfloat16]
        let buffers: [(MLXArray?, Int?)] = [
            (rows.pool, format.keyBits), (rows.ring, format.recentBits),
        ]
        for (array, bits) in buffers {
            guard let array, let bits else { continue }
            let fits = bits == 16 ? floats.contains(array.dtype) : array.dtype == .uint32
            try require(fits && array.shape.prefix(2) == [batch, heads], "rows")
        }
    }

    /// Each row in use has a position of its own, and only such rows are held.
    private func checkPositions(_ positions: [Int32], held: [Bool]?) throws {
        let (seen, size) = (Int32(offset - pending), configuration.maxSize)
        for start in stride(from: 0, to: positions.count, by: size) {
            let used = positions[start ..< start + size].filter { $0 != -1 }
            try require(
                used.count == min(Int(seen), size) && Set(used).count == used.count
                    && used.allSatisfy { (0 ..< seen).contains($0) }, "positions")
        }
        if let held {
            try require(zip(held, positions).allSatisfy { !$0 || $1 >= 0 }, "held")
        }
    }

    private func require(_ fits: Bool, _ part: String) throws {
        guard fits else {
            throw H2OStateError.inconsistent("its \(part) are not those of such a cache")
        }
    }
}
