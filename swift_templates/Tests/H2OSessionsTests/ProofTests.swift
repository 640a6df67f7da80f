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

        await proof.run(try model(), settings: [setting(id: "other"), setting()])

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
        XCTAssertEqual(checks["level 2/cases"]?.verdict, "not run")
        if let kept = ProcessInfo.processInfo.environment["H2O_PROOF"] {
            try Data(contentsOf: file).write(to: URL(filePath: kept))
        }
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
        id: String = "echo", weights: Int? = EchoModel.weightBytes
    ) -> H2OProofSetting {
        let terms = weights.map { ["weights": $0, "keys and values": 1, "ledger": 1] } ?? [:]
        let plan = H2OProofSetting.Plan(terms: terms, mlx: 1 << 40, total: 1 << 41)
        return H2OProofSetting(
            id: id, model: "echo", maxKV: 64, kv: "dense", context: 512, prefillStep: 512,
            versions: ["h2o-pack": "0"], phone: plan, tablet: plan)
    }

    private func model(_ echo: EchoModel = EchoModel()) throws -> H2OModel {
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
                memory: MemoryGuard { 1 << 30 }, background: BackgroundGuard(),
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
