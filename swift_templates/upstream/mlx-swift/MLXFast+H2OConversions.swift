import Cmlx

// From the Swift types of the H2O cache to those of its C functions and back.

extension MLXFast.H2OPolicy {
    func withConfig(
        _ format: MLXFast.H2ORowFormat = .dense, _ body: (mlx_h2o_config) -> Void
    ) {
        withCPolicy { policy in
            body(
                mlx_h2o_config(
                    policy: policy, key_bits: Int32(format.keyBits),
                    value_bits: Int32(format.valueBits), group_size: Int32(format.groupSize),
                    dtype: format.dtype.cmlxDtype))
        }
    }

    func withConfig(
        _ format: MLXFast.H2OMixedFormat, _ body: (mlx_h2o_config, mlx_h2o_mixed) -> Void
    ) {
        let shared = MLXFast.H2ORowFormat(
            keyBits: 16, valueBits: 16, groupSize: format.groupSize, dtype: format.dtype)
        let mixed = mlx_h2o_mixed(
            heavy_bits: Int32(format.heavyBits), recent_bits: Int32(format.recentBits))
        withConfig(shared) { config in body(config, mixed) }
    }
}

extension MLXFast.H2OLedger {
    /// Takes over the arrays of a C ledger, which must not be freed then.
    init(owning ledger: mlx_h2o_ledger) {
        self.init(
            scores: MLXArray(ledger.scores), positions: MLXArray(ledger.positions),
            novelty: MLXArray(ledger.novelty), keySum: MLXArray(ledger.key_sum),
            victim: MLXArray(ledger.victim))
    }

    /// The same arrays for a C call that reads them.
    var borrowed: mlx_h2o_ledger {
        mlx_h2o_ledger(
            scores: scores.ctx, positions: positions.ctx, novelty: novelty.ctx,
            key_sum: keySum.ctx, victim: victim.ctx)
    }
}
