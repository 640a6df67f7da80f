import Foundation
import H2OKit
import H2OTestModels
import MLXLMCommon
import XCTest

@testable import H2OSessions

/// The report of a made-up phone, whose clock advances with each reading.
@MainActor
final class ProofTests: FolderTestCase {
    private let phone = ProofReport.Machine(
        identifier: "iPhone17,1", gpu: "Apple A18 Pro GPU", cores: 6, memoryBytes: 1 << 33,
        system: "iOS", systemVersion: "26.1")

    func testTheReportHasMemoryBesideThePlanAndSpeed() async throws {
        let proof = proof(lasting: .seconds(600))

        await proof.run(try model(), settings: [setting(id: "other"), setting()])

        XCTAssertNil(proof.problem)
        XCTAssertFalse(proof.isRunning)
        let file = try XCTUnwrap(proof.report)
        let report = try report(in: file)
        let memory = Dictionary(uniqueKeysWithValues: report.memory.map { ($0.name, $0) })
        XCTAssertEqual(memory["weights"]?.bytes, EchoModel.weightBytes)
        XCTAssertEqual(memory["weights"]?.planned, 7)
        XCTAssertGreaterThan(memory["keys and values"]?.bytes ?? 0, 0)
        XCTAssertGreaterThan(memory["limit"]?.bytes ?? 0, 0)
        XCTAssertEqual(
            report.speed.map(\.name), ["decode, first minute", "decode, last minute"])
        XCTAssertGreaterThan(report.speed.map(\.tokensPerSecond).min() ?? 0, 0)
        if let copy = ProcessInfo.processInfo.environment["H2O_PROOF"] {
            try Data(contentsOf: file).write(to: URL(filePath: copy))
        }
    }

    func testTheCachesAnswerEachTraceOfThePackageAsPythonsDid() async throws {
        XCTAssertFalse(packageTraces.isEmpty)
        for trace in packageTraces {
            let level = try await level(with: trace)
            XCTAssertEqual(level.verdict, "equal", level.detail)
            XCTAssertEqual(level.cases, 1)
        }
    }

    func testCachesThatAnswerOtherwiseDiffer() async throws {
        let original = packageTraces[0].deletingLastPathComponent()
        let copy = folder.appending(path: "copy")
        try FileManager.default.copyItem(at: original, to: copy)
        let trace = copy.appending(path: "trace.json")
        try String(contentsOf: trace, encoding: .utf8)
            .replacing("\"scale\": 0.", with: "\"scale\": 1.")
            .write(to: trace, atomically: true, encoding: .utf8)

        let level = try await level(with: trace)

        XCTAssertEqual(level.verdict, "differs")
        XCTAssert(level.detail.contains("the outputs differ by"), level.detail)
    }

    func testATraceThatCannotBeReadIsNotRun() async throws {
        let verdicts = [
            try await level(with: folder.appending(path: "none.json")), try await level(with: nil),
        ].map(\.verdict)
        XCTAssertEqual(verdicts, ["not run", "not run"])
    }

    func testAModelOfAnotherPackageIsNotMeasured() async throws {
        let proof = proof(lasting: .zero)

        await proof.run(try model(), settings: [setting(id: "other")])

        XCTAssertNil(proof.report)
        XCTAssertEqual(proof.problem, "This model is not in the package.")
    }

    func testCanceledItLeavesNoReport() async throws {
        let echo = EchoModel()
        let proof = proof(lasting: .seconds(600))
        echo.onCall = { Task { @MainActor in proof.cancel() } }

        await proof.run(try model(echo), settings: [setting()])

        XCTAssertNil(proof.report)
        XCTAssertNil(proof.problem)
        XCTAssertFalse(proof.isRunning)
    }

    func testTheFootprintNowAndAtMostIsInBytes() throws {
        let footprint = Footprint.known(status: "VmHWM:\t    20 kB\nVmRSS:\t    10 kB\n")
        XCTAssertEqual(footprint?.now, 10 << 10)
        XCTAssertEqual(footprint?.most, 20 << 10)
        XCTAssertNil(Footprint.known(status: "VmRSS:\t    10 kB\n"))
        XCTAssertGreaterThan(try XCTUnwrap(Footprint.bytes).most, 1 << 20)
    }

    private func proof(lasting duration: Duration) -> H2OProof {
        H2OProof(duration: duration, machine: phone, folder: folder)
    }

    private func level(with trace: URL?) async throws -> Report.Level {
        let proof = proof(lasting: .zero)
        await proof.run(try model(), settings: [setting(trace: trace)])
        return try report(in: XCTUnwrap(proof.report)).levels[0]
    }

    private func setting(id: String = "echo", trace: URL? = nil) -> H2OProofSetting {
        H2OProofSetting(
            id: id, maxKV: 64, kv: "dense", versions: ["h2o-pack": "0"],
            phone: ["weights": 7], tablet: [:], trace: trace)
    }

    private func model(_ echo: EchoModel = EchoModel()) throws -> H2OModel {
        let clock = SteppingClock()
        let manifest = Data(#"{"format": 1, "model": "echo", "files": []}"#.utf8)
        return H2OModel(
            LoadedModel(
                context: echo.context(),
                manifest: try JSONDecoder().decode(ModelManifest.self, from: manifest),
                caches: H2OCaches(
                    configuration: try H2OConfiguration(maxSize: 64, recentBudget: 8)),
                platform: H2OPlatform(
                    memory: MemoryGuard { LoadedModel.reserve }, background: BackgroundGuard(),
                    elapsed: clock.next)))
    }

    private struct Report: Decodable {
        let levels: [Level]
        let memory: [Memory]
        let speed: [Speed]

        struct Level: Decodable {
            let verdict: String
            let cases: Int
            let detail: String
        }

        struct Memory: Decodable {
            let name: String
            let bytes: Int
            let planned: Int?
        }

        struct Speed: Decodable {
            let name: String
            let tokensPerSecond: Double
        }
    }

    private func report(in file: URL) throws -> Report {
        let decoder = JSONDecoder()
        decoder.keyDecodingStrategy = .convertFromSnakeCase
        return try decoder.decode(Report.self, from: Data(contentsOf: file))
    }
}

/// A clock that advances by five seconds with each reading.
private final class SteppingClock: @unchecked Sendable {
    private let lock = NSLock()
    private var seconds = 0

    func next() -> Duration {
        lock.withLock {
            seconds += 5
            return .seconds(seconds)
        }
    }
}
