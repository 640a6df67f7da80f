import Foundation
import H2OKit

/// Level 2: the caches of this device answer the package's trace as Python's did.
struct ProofTrace: Sendable {
    /// The package's trace; nil if it has none.
    let file: URL?
    private let how = "replay of the package's trace by the caches on this device"

    init(_ file: URL?) { self.file = file }

    /// - Parameter seconds: since the start
    /// - Throws: `CancellationError`
    func checks(on session: H2OSession, at seconds: () -> Double) async throws -> [ProofCheck] {
        guard let file else { return [notRun("the package has no trace", at: seconds())] }
        do {
            let results = try await session.conversation.replay(file)
            return results.flatMap { checks(of: $0, $1, at: seconds()) }
        } catch let error as CancellationError {
            throw error
        } catch {
            return [notRun(error.localizedDescription, at: seconds())]
        }
    }

    private func checks(
        of traced: ParityTrace.Case, _ result: ParityResult, at: Double
    ) -> [ProofCheck] {
        let name = "level 2/\(traced.name)/\(traced.dtype)"
        let first = result.firstDifference.map {
            "; step \($0.step), \($0.kind.rawValue): \($0.detail)"
        }
        func difference(_ what: String, _ size: Float, atMost allowed: Double) -> ProofCheck {
            ProofCheck("\(name)/\(what)", Double(size), unit: "relative", how: how, at: at)
                .expected(.atMost, allowed, from: .reference)
        }
        return [
            ProofCheck(
                "\(name)/differences", first == nil ? 0 : 1, unit: "differences",
                how: String((how + (first ?? "")).prefix(ProofCheck.longestText)), at: at
            ).expected(.equal, 0, from: .reference),
            difference("outputs", result.largestOutputDifference, atMost: traced.tolerance),
            difference("scores", result.largestScoreDifference, atMost: traced.scoreTolerance),
        ]
    }

    private func notRun(_ why: String, at: Double) -> ProofCheck {
        ProofCheck(
            "level 2/cases", unit: "cases", how: how, why: String(why.prefix(ProofCheck.longestText)), at: at)
    }
}

extension Conversation {
    /// Replays a trace, each case as a step of the background guard.
    fileprivate func replay(
        _ file: URL
    ) async throws -> [(traced: ParityTrace.Case, result: ParityResult)] {
        let trace = try ParityTrace(contentsOf: file)
        var results = [(traced: ParityTrace.Case, result: ParityResult)]()
        for traced in trace.cases {
            let result = try await loaded.platform.background.withGPU {
                try trace.replay(traced, in: file.deletingLastPathComponent())
            }
            results.append((traced, result))
        }
        return results
    }
}
