import MLX

extension H2OCacheCore {
    /// The rows' arrays, then the ledger's; none while the cache is empty.
    mutating func save() -> [MLXArray] {
        guard let ledger else { return [] }
        isShared = true
        return rows.saved(length: length) + ledger.arrays
    }

    /// - Throws: ``H2OStateError``
    mutating func restore(_ saved: [MLXArray]) throws {
        guard !saved.isEmpty else {
            rows.restore(nil)
            ledger = nil
            return
        }
        let count = Rows.savedArrays
        let dims = Array(repeating: 4, count: count) + [3, 3, 3, 3, 2]
        let heads = saved[0].shape.prefix(2)
        let fits =
            saved.map(\.ndim) == dims
            && saved.allSatisfy { $0.shape.prefix(2) == heads }
            && saved[count].shape == saved[count + 1].shape
            && saved[count].shape == saved[count + 2].shape
        guard fits else {
            throw H2OStateError.inconsistent("its arrays have the shapes \(saved.map(\.shape))")
        }
        rows.restore(Array(saved.prefix(count)))
        (ledger, isShared) = (MLXFast.H2OLedger(arrays: saved.dropFirst(count)), true)
    }

    /// Takes over the metadata that goes with the arrays restored before.
    ///
    /// - Throws: ``H2OStateError``, `DecodingError`, ``H2OConfigurationError``
    mutating func restore(_ fields: [String], format: String) throws {
        let metadata = try H2OCacheMetadata(fields, format: format)
        try rows.restore(description: metadata.storage)
        configuration = metadata.configuration
        (offset, pending) = (metadata.offset, metadata.pending)
        let fits =
            pending <= offset && metadata.length == length && (ledger == nil) == (length == 0)
            && rows.fits(
                offset: offset, pending: pending, length: length, policy: configuration.policy)
            && (ledger?.scores.dim(2) ?? configuration.maxSize) == configuration.maxSize
        guard fits else {
            throw H2OStateError.inconsistent(
                "its rows \(rows.buffers.map(\.shape)) do not fit its metadata \(fields)")
        }
    }
}
