import Foundation
import H2OKit
import H2OSessions
import H2OTestModels
import MLXLMCommon
import XCTest

/// A report of a phone that is made up, with turns of a clock that each look at it advances.
@MainActor
final class ProofTests: XCTestCase {
    private let phone = ProofMachine(
        identifier: "iPhone17,1", gpu: "Apple A18 Pro GPU", cores: 6, memory: 1 << 33,
        system: "iOS", systemVersion: "26.1")
    private var folder = URL.temporaryDirectory.appending(path: "h2o-proof-\(UUID())")

    override func setUp() async throws {
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    }

    override func tearDown() async throws { try FileManager.default.removeItem(at: folder) }

    func testTheReportSaysWhatTheModelTookAndHowFastItWas() async throws {
        let proof = proof(lasting: .seconds(600))

        await proof.run(try model(), settings: [setting(id: "other"), setting(trace: packageTraces[0])])

        XCTAssertNil(proof.problem)
        XCTAssertFalse(proof.isRunning)
        let file = try XCTUnwrap(proof.report)
        let checks = try checks(in: file)
        XCTAssertEqual(checks["memory/weights"]?.measured, Double(EchoModel.weightBytes))
        XCTAssertEqual(checks["memory/weights"]?.verdict, "as expected")
        XCTAssertEqual(checks["memory/ledger"]?.verdict, "differs", "1 byte was planned")
        XCTAssertGreaterThan(checks["memory/keys and values"]?.measured ?? 0, 0)
        XCTAssertEqual(checks["memory/MLX"]?.verdict, "as expected")
        XCTAssertGreaterThan(checks["speed/decode cold"]?.measured ?? 0, 0)
        XCTAssertGreaterThan(checks["speed/decode after 10 minutes"]?.measured ?? 0, 0)
        XCTAssertEqual(checks["speed/lasting"]?.verdict, "measured")
        XCTAssertGreaterThan(checks["pressure/freed by reset"]?.measured ?? 0, 0)
        XCTAssertEqual(checks["level 2/own settings/float16/outputs"]?.verdict, "as expected")
        if let kept = ProcessInfo.processInfo.environment["H2O_PROOF"] {
            try Data(contentsOf: file).write(to: URL(filePath: kept))
        }
    }

    func testTheCachesAnswerEachTraceOfThePackageAsPythonsDid() async throws {
        for trace in packageTraces {
            let proof = proof(lasting: .zero)

            await proof.run(try model(), settings: [setting(trace: try XCTUnwrap(trace))])

            let level = try checks(in: XCTUnwrap(proof.report)).filter { isOfLevel2($0.key) }
            XCTAssertEqual(level.count, 6, "what differs, outputs and scores, in two types")
            XCTAssertEqual(Set(level.values.map(\.verdict)), ["as expected"])
        }
    }

    func testCachesThatAnswerOtherwiseDiffer() async throws {
        let trace = try XCTUnwrap(packageTraces[0])
        let text = try String(contentsOf: trace, encoding: .utf8)
        let other = folder.appending(path: "other.json")
        try text.replacing("\"scale\": 0.", with: "\"scale\": 1.")
            .write(to: other, atomically: true, encoding: .utf8)
        let proof = proof(lasting: .zero)

        await proof.run(try model(), settings: [setting(trace: other)])

        let level = try checks(in: XCTUnwrap(proof.report)).filter { isOfLevel2($0.key) }
        XCTAssertEqual(
            level["level 2/own settings/float32/differences"]?.verdict, "differs")
        XCTAssertEqual(level["level 2/own settings/float32/outputs"]?.verdict, "differs")
    }

    func testATraceThatCannotBeReadIsNotRun() async throws {
        let proof = proof(lasting: .zero)

        await proof.run(
            try model(), settings: [setting(trace: folder.appending(path: "none.json"))])

        let checks = try checks(in: XCTUnwrap(proof.report))
        XCTAssertEqual(checks["level 2/cases"]?.verdict, "not run")
    }

    private func isOfLevel2(_ id: String) -> Bool { id.hasPrefix("level 2/") }

    func testWhenMemoryIsShortSnapshotsGoAndTheConversationGoesOn() async throws {
        let proof = proof(lasting: .zero)
        let room = LoadedModel.reserve + (48 << 20)
        let before = try XCTUnwrap(Footprint.bytes).now
        let memory = MemoryGuard { Footprint.bytes.map { room + before - $0.now } }

        await proof.run(try model(memory: memory), settings: [setting()])

        let checks = try checks(in: XCTUnwrap(proof.report))
        let held = checks["pressure/held"]?.measured ?? 0
        XCTAssertGreaterThanOrEqual(held, Double(32 << 20))
        XCTAssertLessThanOrEqual(held, Double(64 << 20), "steps of 32 MB")
        XCTAssertLessThanOrEqual(
            checks["pressure/left"]?.measured ?? .infinity, Double(LoadedModel.reserve))
        XCTAssertGreaterThan(checks["pressure/freed by the session"]?.measured ?? 0, 0)
        for reply in ["under way", "while memory is short", "after"] {
            XCTAssertEqual(checks["pressure/reply \(reply)"]?.verdict, "as expected", reply)
        }
    }

    func testWithoutALimitMemoryIsNotMadeShort() async throws {
        let proof = proof(lasting: .zero)

        await proof.run(try model(memory: MemoryGuard { nil }), settings: [setting()])

        let checks = try checks(in: XCTUnwrap(proof.report))
        XCTAssertEqual(checks["pressure/held"]?.verdict, "not run")
        XCTAssertNil(checks["pressure/reply under way"])
    }

    func testWithoutTermsThePlanIsNotCompared() async throws {
        let proof = proof(lasting: .zero)

        await proof.run(try model(), settings: [setting(weights: nil)])

        let checks = try checks(in: XCTUnwrap(proof.report))
        XCTAssertEqual(checks["memory/peak"]?.verdict, "measured")
        XCTAssertNil(checks["memory/MLX"])
    }

    func testAModelOfAnotherPackageIsNotProven() async throws {
        let proof = proof(lasting: .zero)

        await proof.run(try model(), settings: [setting(id: "other")])

        XCTAssertNil(proof.report)
        XCTAssertEqual(proof.problem, "This model is not one of the package's.")
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

    private func proof(lasting: Duration) -> H2OProof {
        H2OProof(lasting: lasting, asksForMoreMemory: true, machine: phone, folder: folder)
    }

    private func setting(
        id: String = "echo", weights: Int? = EchoModel.weightBytes, trace: URL? = nil
    ) -> H2OProofSetting {
        let terms = weights.map { ["weights": $0, "keys and values": 1, "ledger": 1] } ?? [:]
        let plan = H2OProofSetting.Plan(terms: terms, mlx: 1 << 40, total: 1 << 41)
        return H2OProofSetting(
            id: id, model: "echo", maxKV: 64, kv: "dense", context: 512, prefillStep: 512,
            versions: ["h2o-pack": "0"], phone: plan, tablet: plan, trace: trace)
    }

    /// - Parameter memory: by default so much is free that none is held
    private func model(
        _ echo: EchoModel = EchoModel(), memory: MemoryGuard = MemoryGuard { LoadedModel.reserve }
    ) throws -> H2OModel {
        let clock = SteppingClock()
        let manifest = Data(#"{"format": 1, "model": "echo", "files": []}"#.utf8)
        let context = ModelContext(
            configuration: ModelConfiguration(id: "echo", eosTokenIds: [EchoModel.stop]),
            model: echo, processor: NoProcessor(), tokenizer: LetterTokenizer())
        return H2OModel(
            context: context,
            manifest: try JSONDecoder().decode(ModelManifest.self, from: manifest),
            caches: H2OCaches(configuration: try H2OConfiguration(maxSize: 64, recentBudget: 8)),
            archiveInFiles: false, plan: nil,
            platform: H2OPlatform(
                memory: memory, background: BackgroundGuard(),
                elapsed: clock.next))
    }

    private struct Report: Decodable {
        let checks: [Check]
    }

    private struct Check: Decodable {
        let id: String
        let measured: Double?
        let verdict: String
    }

    private func checks(in file: URL) throws -> [String: Check] {
        let report = try JSONDecoder().decode(Report.self, from: Data(contentsOf: file))
        return Dictionary(uniqueKeysWithValues: report.checks.map { ($0.id, $0) })
    }
}

/// Five seconds pass at each look.
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
