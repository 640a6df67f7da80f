import H2OKit
import MLX
import MLXLMCommon
import MLXNN

/// What a conversation whose caches are full takes, beside its plan.
struct ProofMemory: Sendable {
    let setting: H2OProofSetting
    /// nil for a machine that the package plans nothing for.
    let plan: H2OProofSetting.Plan?
    /// Of the plan's model of memory, as `h2o-pack` allows it.
    private let peakTolerance = 0.1

    init(setting: H2OProofSetting, plan: H2OProofSetting.Plan?) {
        self.setting = setting
        self.plan = plan
    }

    /// - Parameter at: seconds after the start
    func checks(of session: H2OSession, at: Double) async -> [ProofCheck] {
        let peak = Double(Memory.peakMemory)
        let arrays = await session.conversation.arrayBytes
        let footprint = Footprint.bytes.map { Double($0.most) }
        guard let plan, !plan.terms.isEmpty else {
            let counted = bytes("memory/peak", peak, "MLX's counter of its peak", at)
            return [counted, self.footprint("memory/footprint", footprint, at)]
        }
        let terms = [
            ("weights", arrays.weights), ("keys and values", arrays.rows),
            ("ledger", arrays.ledger),
        ]
        let exact = terms.map { term, count in
            bytes("memory/\(term)", Double(count), "bytes of the arrays", at)
                .planned(.equal, plan.terms[term] ?? 0)
        }
        return exact + [
            bytes("memory/MLX", peak, "MLX's counter of its peak", at)
                .planned(.atMost, plan.mlx, tolerance: peakTolerance),
            self.footprint("memory/total", footprint, at, atMost: plan.total),
        ]
    }

    private func bytes(_ id: String, _ count: Double, _ how: String, _ at: Double) -> ProofCheck {
        ProofCheck(id, count, unit: "bytes", how: how, at: at)
    }

    private func footprint(
        _ id: String, _ count: Double?, _ at: Double, atMost planned: Int? = nil
    ) -> ProofCheck {
        let how = "the most that the system counts for the app"
        guard let count else {
            return ProofCheck(id, unit: "bytes", how: how, why: "the system does not say", at: at)
        }
        let check = bytes(id, count, how, at)
        return planned.map { check.planned(.atMost, $0, tolerance: peakTolerance) } ?? check
    }
}

extension Conversation {
    /// Bytes of the model's arrays and of those of its H2O caches.
    fileprivate var arrayBytes: (weights: Int, rows: Int, ledger: Int) {
        let parameters = loaded.context.model.parameters().flattened()
        let tracked = caches.flatMap(\.leaves).compactMap { $0 as? any H2OScoreTracking }
        return (
            parameters.map(\.1.nbytes).reduce(0, +), tracked.map(\.rowBytes).reduce(0, +),
            tracked.map(\.ledgerBytes).reduce(0, +)
        )
    }
}
