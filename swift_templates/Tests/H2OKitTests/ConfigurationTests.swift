import Foundation
import H2OKit
import XCTest

final class ConfigurationTests: XCTestCase {
    func testItIsWrittenWithPythonsNames() throws {
        let configuration = try H2OConfiguration(maxSize: 64, pinned: [10 ..< 12])
        let text = json(configuration)

        for field in [
            #""heavy_budget":32"#, #""max_size":64"#, #""pinned":[[10,12]]"#,
            #""recent_budget":28"#, #""score":"peak""#, #""sink_size":4"#,
        ] {
            XCTAssertTrue(text.contains(field), "\(field) is not in \(text)")
        }
    }

    func testThePublishedPolicyIsPythons() throws {
        let configuration = try H2OConfiguration.paper(maxSize: 64)

        XCTAssertEqual(configuration, try H2OConfiguration(maxSize: 64, score: .absLogit))
    }

    func testRecallMayHaveAllItsDefaults() throws {
        let all = try JSONDecoder().decode(
            H2OConfiguration.self, from: Data(#"{"max_size": 128, "recall": true}"#.utf8))
        XCTAssertEqual(all.recall, try H2ORecall())
        XCTAssertEqual(
            json(try H2ORecall()), #"{"archive_bits":8,"ask":2147483647,"limit":0,"reach":64}"#)
    }

    func testSettingsOfRecallAreRefusedByTheirNames() {
        for (make, text) in [
            (
                { try H2ORecall(archiveBits: 5) },
                "recall.archive_bits must be one of 4, 8, 16, got 5."
            ),
            ({ try H2ORecall(ask: 0) }, "recall.ask must be between 1 and 2147483647, got 0."),
            (
                { try H2ORecall(reach: -1) },
                "recall.reach must be between 0 and 2147483647, got -1."
            ),
        ] as [(() throws -> H2ORecall, String)] {
            XCTAssertThrowsError(try make()) { XCTAssertEqual($0.localizedDescription, text) }
        }
    }

    func testAnUnknownFieldIsNamed() throws {
        for (text, field, known) in [
            (#"{"max_size": 64, "scor": "peak"}"#, "scor", "heavy_budget, recent_budget"),
            (#"{"max_size": 64, "recall": {"every": 4}}"#, "recall.every", "ask, reach"),
        ] {
            XCTAssertThrowsError(
                try JSONDecoder().decode(H2OConfiguration.self, from: Data(text.utf8))
            ) { error in
                guard
                    case .invalidConfiguration(.unknownField(field, _), nil)? =
                        error as? H2OCacheError
                else { return XCTFail("\(error)") }
                XCTAssertTrue(error.localizedDescription.contains(known), "\(error)")
            }
        }
    }

    func testValuesOutOfRangeAreRefused() {
        XCTAssertThrowsError(try H2OConfiguration(maxSize: 64, sinkSize: -1)) { error in
            XCTAssertEqual(
                error as? H2OCacheError,
                .invalidConfiguration(
                    .outOfRange(
                        field: "sink_size", value: "-1", allowed: "between 0 and 2147483647")))
            XCTAssertEqual(
                error.localizedDescription, "sink_size must be between 0 and 2147483647, got -1.")
        }
        for make in [
            { try H2OConfiguration(maxSize: 0) },
            { try H2OConfiguration(maxSize: 64, recentBudget: 0) },
            { try H2OConfiguration(maxSize: 64, pinned: [8 ..< 8]) },
        ] {
            XCTAssertThrowsError(try make())
        }
    }
}
