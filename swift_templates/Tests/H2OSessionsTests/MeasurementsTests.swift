import Foundation
import H2OKit
import H2OTestModels
import MLXLMCommon
import XCTest

@testable import H2OSessions

/// Measures a model with a clock that advances by 10 ms whenever it is read, so that each token
/// takes 10 ms.
final class MeasurementsTests: FolderTestCase {
    private let clock = Recorder<Void>()

    private func fixture() throws -> SessionFixture {
        var fixture = try SessionFixture()
        fixture.promptChunk = 16
        fixture.positions = 100
        fixture.elapsed = { [clock] in .milliseconds(10 * clock.add(())) }
        fixture.conditions = DeviceConditions(thermalState: { .fair })
        return fixture
    }

    func testEachPromptIsReadInChunksAndFollowedByTokens() async throws {
        let fixture = try fixture()
        let measurements = try await fixture.makeModel()
            .measure(prompts: [1, 40, 96], tokens: 5, lasting: .zero)
        XCTAssertEqual(measurements.runs.map(\.promptTokens), [1, 40])
        for run in measurements.runs { XCTAssertEqual(run.tokensPerSecond, 100, accuracy: 1e-6) }
        XCTAssertNil(measurements.runs[0].promptTokensPerSecond)
        // The clock is read before and after the prompt.
        XCTAssertEqual(
            try XCTUnwrap(measurements.runs[1].promptTokensPerSecond), 4000, accuracy: 1e-6)
        let lengths = fixture.model.calls.map(\.count)
        // The loop is one token ahead.
        XCTAssertEqual(lengths, [1] + [1, 1, 1, 1, 1] + [16, 16, 7, 1] + [1, 1, 1, 1, 1])
        XCTAssertEqual(
            measurements.leftOut,
            [.init(promptTokens: 96, reason: "the model can attend to 100 tokens")])
    }

    func testTheDeviceWorksUntilTheTimeIsOverOrItIsTooHot() async throws {
        var fixture = try fixture()
        _ = try await fixture.makeModel().measure(prompts: [1], tokens: 1, lasting: .seconds(1))
        XCTAssertGreaterThanOrEqual(clock.entries.count, 100)
        let calls = fixture.model.calls.count
        fixture.conditions = DeviceConditions(thermalState: { .critical })
        let hot = try await fixture.makeModel()
            .measure(prompts: [1], tokens: 1, lasting: .seconds(1))
        XCTAssertEqual(fixture.model.calls.count, calls + 2)
        XCTAssertTrue(hot.json.contains(#""thermal_state":"critical""#), hot.json)
    }

    func testWithoutMemoryOrWeightsNothingIsMeasured() async throws {
        var fixture = try fixture()
        fixture.free = 255 << 20
        let full = try await fixture.makeModel()
            .measure(prompts: [40], tokens: 1, lasting: .seconds(1))
        XCTAssertEqual(
            full.leftOut, [.init(promptTokens: 40, reason: "only 255 MiB were free after 0 tokens")]
        )
        let scripted = try await H2OModel.scripted(["Hello"]).measure()
        XCTAssertEqual(scripted.runs, [])
        XCTAssertEqual(scripted.leftOut.count, 3)
    }

    /// `H2O_MEASUREMENTS` names the file that a test of h2o-pack reads.
    func testTheDocumentHasTheFormatOfBench() async throws {
        let json = try await fixture().makeModel()
            .measure(prompts: [1, 40, 96], tokens: 5, lasting: .zero).json
        let document = try JSONDecoder().decode([String: JSONValue].self, from: Data(json.utf8))
        XCTAssertEqual(document["max_kv"], .int(64))
        XCTAssertEqual(document["prefill_step"], .int(16))
        XCTAssertEqual(document["footprint_bytes"], .int(123_456_789))
        XCTAssertEqual(document["weights_bytes"], .int(EchoModel.weightBytes))
        XCTAssertEqual(document["thermal_state"], .string("fair"))
        if let path = ProcessInfo.processInfo.environment["H2O_MEASUREMENTS"] {
            try Data(json.utf8).write(to: URL(filePath: path))
        }
    }
}
