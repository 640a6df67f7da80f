import Foundation
import MLX

extension H2OCacheCore {
    /// The rows' arrays, the ledger's, then the archive's; none while the cache is empty.
    mutating func save() -> [MLXArray] {
        guard let ledger, let rows else { return [] }
        isShared = true
        let (pool, ring) = rowsInUse
        // Whatever memory the spare rows held is nobody's business.
        let used =
            [firstRows(pool, of: rows.pool)]
            + (rows.ring.map { [firstRows(ring, of: $0)] } ?? [])
        return used + ledger.arrays + (recall?.archive.arrays() ?? [])
    }

    /// One row of zeros stands for none: MLX 0.31 saves no empty array.
    private func firstRows(_ count: Int, of rows: MLXArray) -> MLXArray {
        guard count > 0 else {
            return .zeros([rows.dim(0), rows.dim(1), 1, rows.dim(3)], dtype: rows.dtype)
        }
        return rows[.ellipsis, ..<count, 0...]
    }

    /// Of pool and ring.
    private var rowsInUse: (pool: Int, ring: Int) {
        guard hasRing else { return (length, 0) }
        let waiting = pending > 1 ? pending : 0  // a chunk, which stands behind the ring
        let ringed = min(offset - waiting, configuration.recentBudget) + waiting
        return (length - ringed, ringed)
    }

    /// - Throws: ``H2OCacheError``
    mutating func restore(_ saved: [MLXArray]) throws {
        guard !saved.isEmpty else {
            (rows, ledger, restoredArchive) = (nil, nil, [])
            return
        }
        let count = hasRing ? 2 : 1
        let ledgerDims = [3, 3, 3, 3, 2, 3]
        let isHeld = saved.count > count + 5
        let dims = Array(repeating: 4, count: count) + ledgerDims.prefix(isHeld ? 6 : 5)
        let heads = saved[0].shape.prefix(2)
        let own = saved.prefix(dims.count)
        let fits =
            own.map(\.ndim) == dims
            && saved.allSatisfy { $0.shape.prefix(2) == heads }
            && [1, 2, isHeld ? 5 : 2].allSatisfy { saved[count + $0].shape == saved[count].shape }
        guard fits else {
            throw H2OCacheError.damaged(reason: "its arrays have the shapes \(saved.map(\.shape))")
        }
        rows = MLXFast.H2ORows(pool: saved[0], ring: hasRing ? saved[1] : nil)
        (ledger, isShared) = (MLXFast.H2OLedger(arrays: own.dropFirst(count)), true)
        restoredArchive = Array(saved.dropFirst(dims.count))
    }

    /// Takes over the metadata that goes with the arrays restored before.
    ///
    /// - Parameter archive: where the conversation's archive is now, if it was moved
    /// - Throws: ``H2OCacheError``
    mutating func restore(
        _ fields: [String], format name: String, archive: URL? = nil
    ) throws {
        let metadata = try H2OCacheMetadata(fields, format: name)
        if let saved = try SavedRowFormat(metadata.storage, like: format) {
            format = saved.format
        }
        configuration = try metadata.configuration.movingArchive(to: archive)
        (offset, pending) = (metadata.offset, metadata.pending)
        let fits =
            metadata.length == length && (ledger == nil) == (length == 0) && rowsFit
            && (ledger?.held == nil) == (metadata.archive == nil)
        guard fits else {
            throw H2OCacheError.damaged(
                reason: "its rows \((rows?.arrays ?? []).map(\.shape)) do not fit its metadata "
                    + "\(fields)")
        }
        try checkRestored()
        try restoreArchive(metadata.archive)
    }

    /// Whether the buffers are those of a cache with so many rows in use.
    private var rowsFit: Bool {
        guard let rows else { return length == 0 }
        guard let ring = rows.ring else { return rows.pool.dim(2) == length }
        let used = rowsInUse
        return ring.dim(2) >= used.ring && rows.pool.dim(2) >= used.pool
    }

    /// How the rows are stored, as JSON in Python's names; nil for dense rows.
    var savedFormat: String? {
        hasRing || format.keyBits != 16
            ? json(SavedRowFormat(format, valueDim: hasRing ? valueDim : nil)) : nil
    }
}
