import Foundation
import MLX

/// The newest tokens in a ring at one precision, all others in a pool at another.
struct H2OMixedRows: H2ORows {
    /// Its dtype is that of the first keys.
    private(set) var format: MLXFast.H2OMixedFormat

    private var rows: MLXFast.H2OMixedRows?

    /// Dv of the first values, 0 before them.
    private var valueDim = 0

    /// What moved to the pool does not come back at the ring's precision.
    static let canBeTrimmed = false
    static let savedArrays = 2

    init(_ format: MLXFast.H2OMixedFormat) {
        self.format = format
    }

    var buffers: [MLXArray] { rows.map { [$0.pool, $0.ring] } ?? [] }

    mutating func write(
        keys: MLXArray, values: MLXArray, victim: MLXArray, step: H2OStep,
        policy: MLXFast.H2OPolicy, copy: Bool
    ) {
        if rows == nil { (format.dtype, valueDim) = (keys.dtype, values.dim(3)) }
        rows = MLXFast.h2oMixedCacheWrite(
            rows: rows, keys: keys, values: values, victim: victim, offset: step.offset,
            policy: policy, format: format, copy: copy)
    }

    mutating func attend(
        _ attention: H2OAttention, ledger: MLXFast.H2OLedger, step: H2OStep,
        policy: MLXFast.H2OPolicy
    ) -> (output: MLXArray?, ledger: MLXFast.H2OLedger) {
        guard let rows else { return (nil, ledger) }
        let attended = MLXFast.h2oMixedCacheAttend(
            queries: attention.queries, rows: rows, ledger: ledger, tokens: step.tokens,
            offset: step.offset, valueDim: valueDim, scale: attention.scale,
            mask: attention.mask, policy: policy, format: format)
        self.rows = attended.rows
        return (attended.output, attended.ledger)
    }

    func fetch(
        after step: H2OStep, keyDim: Int, policy: MLXFast.H2OPolicy
    ) -> (MLXArray, MLXArray) {
        guard let rows else { return (.mlxNone, .mlxNone) }
        let ringed = ringed(offset: step.offset + step.tokens, pending: step.tokens, policy)
        return MLXFast.h2oMixedCacheFetch(
            rows: rows, pooled: step.lengthAfter(policy.maxSize) - ringed, ringed: ringed,
            keyDim: keyDim, policy: policy, format: format)
    }

    func trimmed(
        _ ledger: MLXFast.H2OLedger, to length: Int, policy: MLXFast.H2OPolicy
    ) -> MLXFast.H2OLedger {
        preconditionFailure("A mixed cache takes nothing back: its canBeTrimmed is false.")
    }

    func saved(length: Int) -> [MLXArray] { buffers }

    mutating func restore(_ arrays: [MLXArray]?) {
        rows = arrays.map { MLXFast.H2OMixedRows(pool: $0[0], ring: $0[1]) }
    }

    func fits(offset: Int, pending: Int, length: Int, policy: MLXFast.H2OPolicy) -> Bool {
        guard let rows else { return length == 0 }
        let ringed = ringed(offset: offset, pending: pending, policy)
        return rows.ring.dim(2) >= ringed && rows.pool.dim(2) >= length - ringed && valueDim > 0
    }

    /// Rows of the ring in use; a chunk that awaits its attention stands behind them.
    private func ringed(offset: Int, pending: Int, _ policy: MLXFast.H2OPolicy) -> Int {
        pending > 1
            ? min(offset - pending, policy.recentBudget) + pending
            : min(offset, policy.recentBudget)
    }

    var description: String? { json(SavedFormat(format, valueDim: valueDim)) }

    mutating func restore(description: String?) throws {
        let saved = try decode(SavedFormat.self, description)
        try H2OStorage.check(
            [("heavy_bits", saved.heavyBits), ("recent_bits", saved.recentBits)], [4, 8, 16])
        try H2OStorage.check(groupSize: saved.groupSize)
        valueDim = saved.valueDim
        format = MLXFast.H2OMixedFormat(
            heavyBits: saved.heavyBits, recentBits: saved.recentBits,
            groupSize: saved.groupSize, dtype: saved.dtype.value)
    }

    private struct SavedFormat: Codable {
        let heavyBits: Int
        let recentBits: Int
        let groupSize: Int
        let dtype: SavedDType
        let valueDim: Int

        init(_ format: MLXFast.H2OMixedFormat, valueDim: Int) {
            heavyBits = format.heavyBits
            recentBits = format.recentBits
            groupSize = format.groupSize
            dtype = SavedDType(format.dtype)
            self.valueDim = valueDim
        }

        private enum CodingKeys: String, CodingKey {
            case heavyBits = "heavy_bits"
            case recentBits = "recent_bits"
            case groupSize = "group_size"
            case dtype
            case valueDim = "value_dim"
        }
    }
}
