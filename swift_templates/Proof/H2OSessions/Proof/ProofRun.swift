import Foundation
import H2OKit
import MLX
import MLXLMCommon
import MLXNN

/// Runs the measurements of a proof, one after the other.
package struct ProofRun: Sendable {
    let model: H2OModel
    let setting: H2OProofSetting
    /// The duration of all turns.
    let duration: Duration
    let machine: ProofReport.Machine
    /// The length of the first and of the last period; a speed is measured for each of them.
    private let window = Duration.seconds(60)

    /// Runs all measurements and makes the report.
    ///
    /// - Parameter progress: receives the share of the time that has passed, after each turn
    /// - Throws: `CancellationError`, or an error of a reply
    func callAsFunction(progress: @Sendable (Double) -> Void) async throws -> Data {
        let session = model.makeSession(options: H2OSession.Options(maxTokens: 128))
        let level = try await replayTrace(on: session.conversation)
        Memory.peakMemory = 0
        // The prompt is longer than the caches, so that all their rows are used.
        _ = try await session.respond(
            to: String(repeating: "one two three. ", count: setting.maxKV))
        try Task.checkCancellation()
        let memory = await memory(of: session.conversation)
        let speed = speed(of: try await turns(of: session, progress))
        return try ProofReport(
            date: Date.now.formatted(.iso8601), machine: machine, versions: setting.versions,
            model: setting.id, maxKv: setting.maxKV, kv: setting.kv, levels: [level],
            memory: memory + limit, speed: speed, thermalState: thermalState
        ).data()
    }

    /// Runs level 2: compares this device's caches with the trace that Python recorded.
    private func replayTrace(on conversation: Conversation) async throws -> ProofReport.Level {
        guard let file = setting.trace else {
            return ProofReport.Level(notRun: "the package has no trace for this storage")
        }
        do {
            return ProofReport.Level(try await conversation.replay(file))
        } catch let error as CancellationError {
            throw error
        } catch {
            return ProofReport.Level(notRun: error.localizedDescription)
        }
    }

    private func memory(of conversation: Conversation) async -> [ProofReport.Memory] {
        let planned = ["iOS": setting.phone, "iPadOS": setting.tablet][machine.system] ?? [:]
        let arrays = await conversation.arrayBytes
        let counted = [
            ("weights", arrays.weights), ("keys and values", arrays.rows),
            ("ledger", arrays.ledger), ("MLX", Memory.peakMemory),
        ]
        let footprint = Footprint.bytes.map { [("total", $0.most)] } ?? []
        return (counted + footprint).map { name, bytes in
            ProofReport.Memory(name: name, bytes: bytes, planned: planned[name])
        }
    }

    /// The memory that the system lets this app use; empty if the system does not report it.
    private var limit: [ProofReport.Memory] {
        guard machine.system == "iOS" || machine.system == "iPadOS",
            let free = model.loaded.platform.memory.free, let used = Footprint.bytes?.now
        else { return [] }
        return [ProofReport.Memory(name: "limit", bytes: used + free)]
    }

    /// The time of a reply, counted from the first turn, and the reply's usage.
    private struct Turn {
        let begun: Duration
        let ended: Duration
        let usage: H2OSession.Usage
    }

    /// Runs turns until ``duration`` has passed.
    private func turns(
        of session: H2OSession, _ progress: (Double) -> Void
    ) async throws -> [Turn] {
        let elapsed = model.loaded.platform.elapsed
        let start = elapsed()
        var turns = [Turn]()
        repeat {
            let begun = elapsed() - start
            let usage = try await session.respond(to: "Go on.").usage
            try Task.checkCancellation()
            turns.append(Turn(begun: begun, ended: elapsed() - start, usage: usage))
            progress(min(1, turns[turns.count - 1].ended / duration))
        } while turns[turns.count - 1].ended < duration
        return turns
    }

    private func speed(of turns: [Turn]) -> [ProofReport.Speed] {
        let parts = [
            ("decode, first minute", turns.filter { $0.begun < window }),
            ("decode, last minute", turns.filter { $0.ended > duration - window }),
        ]
        return parts.compactMap { name, turns in
            tokensPerSecond(of: turns).map {
                ProofReport.Speed(name: name, tokensPerSecond: $0)
            }
        }
    }

    /// Generated tokens per second, without the first token of each turn; nil if no others were
    /// generated.
    private func tokensPerSecond(of turns: [Turn]) -> Double? {
        let usages = turns.map(\.usage).filter { $0.generatedTokens > 1 }
        let tokens = usages.map { Double($0.generatedTokens - 1) }.reduce(0, +)
        let time = usages.map { ($0.duration - $0.timeToFirstToken) / .seconds(1) }.reduce(0, +)
        return time > 0 ? tokens / time : nil
    }

    private var thermalState: Int? {
        #if canImport(Darwin)
            ProcessInfo.processInfo.thermalState.rawValue
        #else
            nil
        #endif
    }
}

extension Conversation {
    /// Replays a trace, each case as a step of the background guard.
    fileprivate func replay(_ file: URL) async throws -> [ParityResult] {
        let trace = try ParityTrace(contentsOf: file)
        var results = [ParityResult]()
        for traced in trace.cases {
            let result = try await loaded.platform.background.withGPU {
                try trace.replay(traced, in: file.deletingLastPathComponent())
            }
            results.append(result)
        }
        return results
    }

    /// Bytes of the weights, and of the rows and the ledger of the H2O caches.
    fileprivate var arrayBytes: (weights: Int, rows: Int, ledger: Int) {
        let parameters = loaded.context.model.parameters().flattened()
        let tracked = caches.evicting
        return (
            parameters.map(\.1.nbytes).reduce(0, +), tracked.map(\.rowBytes).reduce(0, +),
            tracked.map(\.ledgerBytes).reduce(0, +)
        )
    }
}
