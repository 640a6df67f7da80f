import Foundation
import H2OKit
import MLX
import MLXLMCommon

/// The parts of a proof, one after the other.
package struct ProofRun: Sendable {
    package let model: H2OModel
    package let setting: H2OProofSetting
    /// For how long turns follow each other.
    package let lasting: Duration
    package let machine: ProofMachine
    /// Whether the app asks the system for more memory than other apps get.
    package let asksForMoreMemory: Bool
    /// Of the last turns that are measured, and of the first.
    private let window = Duration.seconds(60)

    package init(
        model: H2OModel, setting: H2OProofSetting, lasting: Duration, machine: ProofMachine,
        asksForMoreMemory: Bool
    ) {
        self.model = model
        self.setting = setting
        self.lasting = lasting
        self.machine = machine
        self.asksForMoreMemory = asksForMoreMemory
    }

    /// Runs them, and writes the report.
    ///
    /// - Parameter progress: gets the share of the time that is over, after each turn
    /// - Throws: `CancellationError`, or what a reply throws
    package func callAsFunction(progress: @Sendable (Double) -> Void) async throws -> Data {
        let (began, started) = (elapsed(), Date())
        let seconds = { (elapsed() - began) / .seconds(1) }
        var checks = [ProofThermal.check("thermal/state at the start", at: seconds())]
        let session = model.makeSession(options: H2OSession.Options(maxTokens: 128))
        checks += try await ProofTrace(setting.trace).checks(on: session, at: seconds)
        Memory.peakMemory = 0
        let filling = String(repeating: "one two three. ", count: setting.maxKV)
        _ = try await session.respond(to: filling)
        try Task.checkCancellation()
        checks += await ProofMemory(setting: setting, plan: machine.plan(of: setting))
            .checks(of: session, at: seconds())
        let turns = try await turns(of: session, progress)
        checks += speed(of: turns, at: seconds())
        checks.append(ProofThermal.check("thermal/state", at: seconds()))
        checks += try await ProofPressure(model: model, hasLimit: hasLimit)
            .checks(on: session, at: seconds)
        checks.append(await reset(of: session, at: seconds))
        checks.append(limit(at: seconds()))
        return try ProofReport(
            setting: setting, machine: machine,
            modelDigest: model.loaded.manifest?.digest ?? "", started: started,
            duration: elapsed() - began, checks: checks
        ).data()
    }

    private func elapsed() -> Duration { model.loaded.platform.elapsed() }

    /// A reply's time since the first turn, and what it took.
    private struct Turn {
        let begun: Duration
        let ended: Duration
        let usage: H2OSession.Usage
    }

    /// Turns until the time is over.
    private func turns(
        of session: H2OSession, _ progress: (Double) -> Void
    ) async throws -> [Turn] {
        let began = elapsed()
        var turns = [Turn]()
        repeat {
            let begun = elapsed() - began
            let usage = try await session.respond(to: "Go on.").usage
            try Task.checkCancellation()
            turns.append(Turn(begun: begun, ended: elapsed() - began, usage: usage))
            progress(min(1, turns[turns.count - 1].ended / lasting))
        } while turns[turns.count - 1].ended < lasting
        return turns
    }

    private func speed(of turns: [Turn], at: Double) -> [ProofCheck] {
        let cold = turns.filter { $0.begun < window }
        let warm = turns.filter { $0.ended > lasting - window }
        let minutes = Int(lasting / .seconds(60))
        let first = decoding("speed/decode cold", cold, "turns of the first minute", at)
        let last = decoding(
            "speed/decode after \(minutes) minutes", warm, "turns of the last minute", at)
        let ratio = ProofCheck.ratio(
            "speed/lasting", last, first, how: "the last minute's over the first's", at: at)
        return [first, last] + (ratio.map { [$0] } ?? [])
    }

    /// Generated tokens per second of turns, without the first token of each.
    private func decoding(
        _ id: String, _ turns: [Turn], _ how: String, _ at: Double
    ) -> ProofCheck {
        let usages = turns.map(\.usage).filter { $0.generatedTokens > 1 }
        let tokens = usages.map { Double($0.generatedTokens - 1) }.reduce(0, +)
        let time = usages.map { ($0.duration - $0.timeToFirstToken) / .seconds(1) }.reduce(0, +)
        guard tokens > 0, time > 0 else {
            return ProofCheck(
                id, unit: "tokens/s", how: how, why: "no reply had two tokens", at: at)
        }
        return ProofCheck(id, tokens / time, unit: "tokens/s", how: how, at: at)
    }

    /// What an app gets back that ends its conversation when memory is short.
    private func reset(of session: H2OSession, at seconds: () -> Double) async -> ProofCheck {
        let before = Memory.activeMemory
        await session.reset()
        return ProofCheck(
            "pressure/freed by reset", Double(max(0, before - Memory.activeMemory)),
            unit: "bytes", how: "MLX's arrays before H2OSession.reset() and after", at: seconds())
    }

    /// Whether the system ends an app that takes too much.
    private var hasLimit: Bool { machine.system == "iOS" || machine.system == "iPadOS" }

    /// What the system lets this app use.
    private func limit(at: Double) -> ProofCheck {
        let id = asksForMoreMemory ? "limits/entitled" : "limits/default"
        let how = "the app's footprint and what it may still allocate"
        guard hasLimit, let free = model.loaded.platform.memory.free,
            let used = Footprint.bytes?.now
        else {
            return ProofCheck(
                id, unit: "bytes", how: how, why: "the system names no limit", at: at)
        }
        return ProofCheck(id, Double(used + free), unit: "bytes", how: how, at: at)
    }
}

/// How hot the device is.
enum ProofThermal {
    /// From 0, nominal, to 3, critical.
    static func check(_ id: String, at: Double) -> ProofCheck {
        let how = "ProcessInfo.thermalState, 0 nominal to 3 critical"
        #if canImport(Darwin)
            let state = Double(ProcessInfo.processInfo.thermalState.rawValue)
            return ProofCheck(id, state, unit: "of 3", how: how, at: at)
        #else
            return ProofCheck(
                id, unit: "of 3", how: how, why: "this system does not say", at: at)
        #endif
    }
}
