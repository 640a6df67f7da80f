import Foundation
import H2OKit
import XCTest

/// Tests the JSON of budgets and of all settings of a model's caches.
final class SettingsFileTests: XCTestCase {
    func testBudgetsAreReadAndWrittenAsPythonWritesThem() throws {
        let text =
            #"{"format":1,"layers":[{"heavy_budget":300,"recent_budget":208},null,"#
            + #"{"heavy_budget":30,"max_size":64,"recent_budget":20}],"recall":[0]}"#
        let layers: [H2OBudgets.Layer?] = [
            .init(heavyBudget: 300, recentBudget: 208), nil,
            .init(heavyBudget: 30, recentBudget: 20, maxSize: 64),
        ]
        let budgets = H2OBudgets(layers: layers, recall: [0])

        XCTAssertEqual(
            try JSONDecoder().decode(H2OBudgets.self, from: Data(text.utf8)), budgets)
        XCTAssertEqual(json(budgets), text)
    }

    func testOtherBudgetsAreRefused() {
        let names = ["format", "layers", "recall"]
        let ofLayer = ["heavy_budget", "recent_budget", "max_size"]
        let cases: [(String, H2OCacheError)] = [
            (#"{"format": 2, "layers": []}"#, .otherBudgetsFormat(found: 2, known: 1)),
            (
                #"{"format": 1, "layers": [], "model": "x"}"#,
                .invalidConfiguration(.unknownField(field: "model", known: names))
            ),
            (
                #"{"format": 1, "layers": [{"heavy": 1}]}"#,
                .invalidConfiguration(.unknownField(field: "heavy", known: ofLayer))
            ),
        ]
        for (text, expected) in cases {
            XCTAssertThrowsError(
                try JSONDecoder().decode(H2OBudgets.self, from: Data(text.utf8))
            ) { error in
                XCTAssertEqual(error as? H2OCacheError, expected)
            }
        }
    }

    func testAnErrorOfABudgetsFileNamesTheFile() throws {
        let file = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
        try Data(#"{"format": 2, "layers": []}"#.utf8).write(to: file)
        defer { try? FileManager.default.removeItem(at: file) }

        XCTAssertThrowsError(try H2OBudgets(contentsOf: file)) { error in
            XCTAssertTrue(error.localizedDescription.contains(file.lastPathComponent))
            XCTAssertTrue(
                error.localizedDescription.hasSuffix(
                    "format is \"2\", but this release reads format 1."))
        }
    }

    func testSettingsAreReadAsTheyWereWritten() throws {
        let caches = H2OCaches(
            configuration: try H2OConfiguration(
                maxSize: 100, sinkSize: 2, heavyBudget: 30, recentBudget: 40, score: .softmax,
                pinned: [5 ..< 8, 20 ..< 21],
                recall: H2ORecall(ask: 20, reach: 4, archiveBits: 4, layers: [1, 3], limit: 900)),
            storage: .keys8Values4, groupSize: 32,
            budgets: H2OBudgets(layers: [nil, .init(heavyBudget: 8, recentBudget: 40)]))

        let data = try JSONEncoder().encode(caches)

        let text = String(decoding: data, as: UTF8.self)
        XCTAssertTrue(text.contains(#""pinned":[[5,8],[20,21]]"#), text)
        XCTAssertEqual(try JSONDecoder().decode(H2OCaches.self, from: data), caches)
    }

    func testMissingSettingsHaveTheirDefaults() throws {
        let data = Data(#"{"config": {"max_size": 64, "score": "abs_logit"}}"#.utf8)

        XCTAssertEqual(
            try JSONDecoder().decode(H2OCaches.self, from: data),
            H2OCaches(configuration: try H2OConfiguration(maxSize: 64, score: .absLogit)))
    }

    func testAStorageThatThereIsNotIsRefused() {
        let data = Data(#"{"config": {"max_size": 64}, "kv": "k4v8"}"#.utf8)

        XCTAssertThrowsError(try JSONDecoder().decode(H2OCaches.self, from: data)) { error in
            XCTAssertEqual(
                error.localizedDescription,
                "kv must be one of 16, 8, k8v4, 4, heavy=8,recent=16, heavy=4,recent=16, "
                    + "heavy=4,recent=8, heavy=16,recent=8, heavy=16,recent=4, "
                    + "heavy=8,recent=4, got k4v8.")
        }
    }
}
