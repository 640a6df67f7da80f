extension H2OScoreTracking {
    /// Bytes of the buffers of keys and values, spare rows included.
    package var rowBytes: Int { bytes { $0.rows?.arrays.map(\.nbytes) } }

    /// Bytes of scores, positions and what else decides what is evicted.
    package var ledgerBytes: Int { bytes { $0.ledger?.arrays.map(\.nbytes) } }

    private func bytes(_ counts: (H2OCacheCore) -> [Int]?) -> Int {
        let core = (self as? any H2OCacheImplementation)?.core
        return core.flatMap(counts)?.reduce(0, +) ?? 0
    }
}
