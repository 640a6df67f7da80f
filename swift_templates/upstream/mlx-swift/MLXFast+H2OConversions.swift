import Cmlx

// From the Swift types of the H2O cache to those of its C functions and back.

extension MLXFast.H2OPolicy {
    func withConfig(_ format: MLXFast.H2ORowFormat, _ body: (mlx_h2o_config) -> Void) {
        withCPolicy { policy in
            body(
                mlx_h2o_config(
                    policy: policy, key_bits: Int32(format.keyBits),
                    value_bits: Int32(format.valueBits), group_size: Int32(format.groupSize),
                    dtype: format.dtype.cmlxDtype, recent_bits: Int32(format.recentBits ?? 0),
                    rotated: format.isRotated))
        }
    }
}

extension MLXFast.H2ORows {
    /// Takes over the arrays of C rows, which must not be freed then.
    init(owning rows: mlx_h2o_rows) {
        self.init(
            pool: MLXArray(rows.pool), ring: rows.ring.ctx == nil ? nil : MLXArray(rows.ring))
    }

    /// The same arrays for a C call that reads them.
    var borrowed: mlx_h2o_rows {
        mlx_h2o_rows(pool: pool.ctx, ring: ring?.ctx ?? mlx_array())
    }
}

extension MLXFast.H2OLedger {
    /// Takes over the arrays of a C ledger, which must not be freed then.
    init(owning ledger: mlx_h2o_ledger) {
        self.init(
            scores: MLXArray(ledger.scores), positions: MLXArray(ledger.positions),
            novelty: MLXArray(ledger.novelty), keySum: MLXArray(ledger.key_sum),
            victim: MLXArray(ledger.victim),
            held: ledger.held.ctx == nil ? nil : MLXArray(ledger.held))
    }

    /// The same arrays for a C call that reads them.
    var borrowed: mlx_h2o_ledger {
        mlx_h2o_ledger(
            scores: scores.ctx, positions: positions.ctx, novelty: novelty.ctx,
            key_sum: keySum.ctx, victim: victim.ctx, held: held?.ctx ?? mlx_array())
    }
}
