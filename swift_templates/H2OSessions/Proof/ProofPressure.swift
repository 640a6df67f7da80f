import H2OKit
import MLX

/// What a conversation does while memory is short. It is made short by holding what the app may
/// still allocate, until no more is left than the plan needs besides what is in use and a
/// reserve; then sessions keep no snapshots in memory.
struct ProofPressure: Sendable {
    let model: H2OModel
    /// Whether the system ends an app that takes too much.
    let hasLimit: Bool
    private let step = 32 << 20

    init(model: H2OModel, hasLimit: Bool) {
        (self.model, self.hasLimit) = (model, hasLimit)
    }

    /// - Parameters:
    ///   - session: with a conversation that has begun
    ///   - seconds: since the start
    /// - Throws: `CancellationError`
    func checks(on session: H2OSession, at seconds: () -> Double) async throws -> [ProofCheck] {
        guard hasLimit, let free = model.loaded.platform.memory.free else {
            return [notRun("the system names no limit", at: seconds())]
        }
        let before = await session.conversation.snapshots.bytes.memory
        var replies = [ProofCheck]()
        func noteReply(_ what: String, _ outcome: Outcome) {
            let check = ProofCheck(
                "pressure/reply \(what)", outcome.isWhole ? 1 : 0, unit: "replies",
                how: outcome.how, at: seconds())
            replies.append(check.expected(.equal, 1, from: .goal))
        }
        var held = HeldMemory()
        async let underWay = Outcome(of: session)
        var isShort = isShort
        while !isShort, held.bytes < free - LoadedModel.reserve {
            held.grow(by: step)
            await Task.yield()
            isShort = self.isShort
        }
        noteReply("under way", try await underWay)
        guard isShort else {
            return [notRun("\(held.bytes) bytes did not make memory short", at: seconds())]
        }
        let left = model.loaded.platform.memory.free ?? 0
        noteReply("while memory is short", try await Outcome(of: session))
        let after = await session.conversation.snapshots.bytes.memory
        let taken = held.bytes
        held = HeldMemory()
        noteReply("after", try await Outcome(of: session))
        return replies + [
            bytes("held", taken, "memory that was held until the rest was short", seconds()),
            bytes("left", left, "bytes that the app might still allocate then", seconds()),
            bytes(
                "freed by the session", max(0, before - after),
                "snapshots in memory before and after a reply while memory was short", seconds()),
        ]
    }

    /// Whether no snapshot may be in memory.
    private var isShort: Bool { model.loaded.snapshotRoom(taken: 0).map { $0 <= 0 } ?? false }

    private func bytes(_ what: String, _ count: Int, _ how: String, _ at: Double) -> ProofCheck {
        ProofCheck("pressure/\(what)", Double(count), unit: "bytes", how: how, at: at)
    }

    private func notRun(_ why: String, at: Double) -> ProofCheck {
        ProofCheck(
            "pressure/held", unit: "bytes", how: "memory that is held until the rest is short",
            why: why, at: at)
    }
}

/// What became of a reply.
private struct Outcome {
    let isWhole: Bool
    let how: String

    /// - Throws: `CancellationError`
    init(of session: H2OSession) async throws {
        do {
            let usage = try await session.respond(to: "Go on.").usage
            try Task.checkCancellation()
            isWhole = usage.stop != nil && usage.stop != .cancelled
            how = "\(usage.generatedTokens) tokens, and it ended by itself"
        } catch let error as CancellationError {
            throw error
        } catch {
            isWhole = false
            how = String("it failed: \(error.localizedDescription)".prefix(ProofCheck.longestText))
        }
    }
}
