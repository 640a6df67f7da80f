import Foundation
import H2OSessions
import MLXLMCommon
import XCTest

/// Tests values of types, and the schemas that follow from types.
final class GenerableTests: XCTestCase {
    private struct Trip: H2OGenerable, Equatable {
        enum Means: String, Decodable, CaseIterable { case train, boat }

        struct Stay: Decodable, Equatable {
            let nights: UInt
            let price: Double?
        }

        let city: String
        let by: Means
        let stays: [Stay]
        let isShort: Bool
        let site: URL?

        private enum CodingKeys: String, CodingKey {
            case city, by, stays
            case isShort = "short"
            case site
        }
    }

    private struct Node: H2OGenerable { let children: [Node] }
    private struct Prices: H2OGenerable { let prices: [String: Double] }
    private struct Day: H2OGenerable { let date: Date }
    private struct Chosen: H2OGenerable {
        enum Word: String, Decodable { case yes }

        let word: Word
    }

    private struct Small: H2OGenerable, Equatable {
        let number: Int

        static var generationSchema: H2OSchema {
            get throws {
                try H2OSchema(
                    """
                    {"type": "object", "required": ["number"], "properties": {
                      "number": {"type": "integer", "maximum": 9}}}
                    """)
            }
        }
    }

    private func value(_ json: String) throws -> JSONValue {
        try JSONDecoder().decode(JSONValue.self, from: Data(json.utf8))
    }

    func testASchemaFollowsFromAType() throws {
        XCTAssertEqual(
            try value(Trip.generationSchema.json),
            try value(
                """
                {"type": "object", "required": ["city", "by", "stays", "short"],
                 "x-order": ["city", "by", "stays", "short", "site"], "properties": {
                   "city": {"type": "string"}, "by": {"enum": ["train", "boat"]},
                   "stays": {"type": "array", "items": {
                     "type": "object", "required": ["nights"], "x-order": ["nights", "price"],
                     "properties": {"nights": {"type": "integer", "minimum": 0},
                                    "price": {"type": "number"}}}},
                   "short": {"type": "boolean"}, "site": {"type": "string"}}}
                """))
        XCTAssertEqual(
            try value([Small].generationSchema.json),
            .object(["type": .string("array"), "items": try value(Small.generationSchema.json)]))
    }

    func testATypeThatNoSchemaDescribesIsNamed() {
        let types: [(any H2OGenerable.Type, String)] = [
            (Node.self, "Node"), (Prices.self, "Dictionary<String, Double>"), (Chosen.self, "Word"),
            (Day.self, "Date"),
        ]
        for (type, name) in types {
            XCTAssertThrowsError(try type.generationSchema) { error in
                XCTAssertEqual(
                    error as? H2OSessionError, .invalidSchema(.notDerivable(type: name)))
                XCTAssertTrue(error.localizedDescription.contains(name))
            }
        }
    }

    func testAReplyIsAValueOfTheType() async throws {
        let json = """
            {"city": "Oslo", "by": "boat", "stays": [{"nights": 2}], "short": true}
            """
        let session = H2OModel.scripted([.text(json)], [#"[{"number": 7}]"#]).makeSession()
        let trip = try await session.respond(to: "Where?", generating: Trip.self)
        XCTAssertEqual(
            trip.content,
            Trip(
                city: "Oslo", by: .boat, stays: [Trip.Stay(nights: 2, price: nil)], isShort: true,
                site: nil))
        XCTAssertEqual(trip.usage.stop, .endOfTurn)
        let numbers: [Small] = try await session.respond(to: "Which?").content
        XCTAssertEqual(numbers, [Small(number: 7)])
    }

    func testAReplyThatTheTypeRefusesIsAnErrorAndStaysInTheConversation() async throws {
        struct Count: H2OGenerable { let count: Int }
        let large = #"{"count": 123456789012345678901234567890}"#
        let session = H2OModel.scripted(["twelve"], [.text(large)]).makeSession()
        await assertThrows(
            try await session.respond(to: "How many?", generating: Count.self),
            H2OSessionError.replyBreaksSchema(place: ""))
        assertEqual(await session.transcript, [])
        await assertThrows(try await session.respond(to: "How many?", generating: Count.self)) {
            guard case .replyDoesNotFit("Count", _)? = $0 as? H2OSessionError else {
                return XCTFail("\($0)")
            }
        }
        assertEqual(await session.transcript.last?.text, large)
    }

    func testTextIsStreamedAlone() async throws {
        let session = H2OModel.scripted([.thought("Hm. "), "one two"]).makeSession()
        var texts = [String]()
        for try await text in session.streamText(to: "count") { texts.append(text) }
        XCTAssertEqual(texts, ["one ", "two"])
    }
}
