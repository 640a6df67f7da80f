import Foundation
import H2OKit
import XCTest

final class ConfigurationTests: XCTestCase {
    func testItIsWrittenWithPythonsNames() throws {
        let configuration = try H2OConfiguration(maxSize: 64, pinned: [10 ..< 12])
        let text = json(configuration)

        for field in [
            #""decay":0.999"#, #""heavy_budget":32"#, #""max_size":64"#, #""novelty":2"#,
            #""novelty_margin":0"#, #""observation_window":64"#, #""pinned":[[10,12]]"#,
            #""recent_budget":28"#, #""score":"peak""#, #""sink_size":4"#,
        ] {
            XCTAssertTrue(text.contains(field), "\(field) is not in \(text)")
        }
    }

    func testTheTunedPolicyIsPythons() throws {
        for (size, recent) in [(10, 1), (128, 60), (140, 64), (256, 64), (260, 65), (1024, 256)] {
            let configuration = try H2OConfiguration.tuned(maxSize: size)

            XCTAssertEqual(configuration.recentBudget, recent)
            XCTAssertEqual(configuration.heavyBudget, size - 4 - recent)
            XCTAssertEqual(configuration.decay, 0.97)
            XCTAssertEqual(configuration.noveltyMargin, 0.25)
        }
    }

    func testRecallMayHaveAllItsDefaults() throws {
        let all = try JSONDecoder().decode(
            H2OConfiguration.self, from: Data(#"{"max_size": 128, "recall": true}"#.utf8))
        XCTAssertEqual(all.recall, try H2ORecall())
        XCTAssertEqual(all.recallRows, 63)
        XCTAssertThrowsError(try H2ORecall(archiveBits: 5)) { error in
            XCTAssertEqual(
                error.localizedDescription,
                "recall.archive_bits must be one of 4, 8, 16, got 5.")
        }
    }

    func testAnUnknownFieldIsNamed() throws {
        let data = Data(#"{"max_size": 64, "novlty": 1}"#.utf8)

        XCTAssertThrowsError(try JSONDecoder().decode(H2OConfiguration.self, from: data)) { error in
            guard
                case .invalidConfiguration(.unknownField("novlty", _), nil)? =
                    error as? H2OCacheError
            else { return XCTFail("\(error)") }
            XCTAssertTrue(error.localizedDescription.contains("heavy_budget, recent_budget"))
        }
    }

    func testBudgetsThatExceedMaxSizeAreRefused() {
        assertRefused(
            try H2OConfiguration(maxSize: 64, heavyBudget: 40, recentBudget: 30),
            .budgetsExceedMaxSize(
                sinkSize: 4, heavyBudget: 40, recentBudget: 30, total: 74, maxSize: 64),
            "sink_size + heavy_budget + recent_budget = 4 + 40 + 30 = 74 is more than max_size = "
                + "64. Lower a budget or raise max_size.")
    }

    func testValuesOutOfRangeAreRefused() {
        assertRefused(
            try H2OConfiguration(maxSize: 64, decay: 1.5),
            .outOfRange(field: "decay", value: "1.5", allowed: "between 0 and 1"),
            "decay must be between 0 and 1, got 1.5.")
        for make in [
            { try H2OConfiguration(maxSize: 64, sinkSize: -1) },
            { try H2OConfiguration(maxSize: 64, novelty: -1) },
            { try H2OConfiguration(maxSize: 64, novelty: .infinity) },
            { try H2OConfiguration(maxSize: 64, decay: .nan) },
            { try H2OConfiguration(maxSize: 64, pinned: [8 ..< 8]) },
            { try H2OConfiguration(maxSize: 64, observationWindow: 0) },
            { try H2OConfiguration(maxSize: 64, noveltyMargin: -0.1) },
        ] {
            XCTAssertThrowsError(try make())
        }
    }

    private func assertRefused(
        _ make: @autoclosure () throws -> H2OConfiguration,
        _ expected: H2OCacheError.ConfigurationProblem,
        _ text: String, line: UInt = #line
    ) {
        XCTAssertThrowsError(try make(), line: line) { error in
            XCTAssertEqual(
                error as? H2OCacheError, .invalidConfiguration(expected), line: line)
            XCTAssertEqual(error.localizedDescription, text, line: line)
        }
    }
}
