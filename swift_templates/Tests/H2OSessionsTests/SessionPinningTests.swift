import H2OKit
import H2OSessions
import XCTest

final class SessionPinningTests: XCTestCase {
    func testTheSystemPromptStaysHoweverLongTheConversation() async throws {
        for hasTemplate in [true, false] {
            var fixture = try SessionFixture(maxSize: 40)
            fixture.hasTemplate = hasTemplate
            fixture.instructions = "you are brief."
            let session = fixture.makeSession()
            for _ in 0 ..< 12 { _ = try await session.respond(to: "tell me more") }

            let kept = await session.keptPositions
            let seen = await session.tokensSeen

            XCTAssertGreaterThan(seen, 4 * 40)
            XCTAssertEqual(kept.shares.count, seen)
            let prompt = hasTemplate ? "<s:you are brief.|" : "you are brief.\n"
            XCTAssertTrue(kept.shares.prefix(prompt.count).allSatisfy { $0 == 1 })
            XCTAssertTrue(kept.shares.suffix(8).allSatisfy { $0 == 1 }, "recent tokens stay too")
            XCTAssertEqual(kept.shares.reduce(0, +), 40, accuracy: 1e-3)
        }
    }

    func testWithoutASystemPromptNothingIsPinned() async throws {
        let fixture = try SessionFixture(maxSize: 24)
        let session = fixture.makeSession()
        for _ in 0 ..< 12 { _ = try await session.respond(to: "tell me more") }

        let kept = await session.keptPositions

        XCTAssertFalse(kept.shares.prefix(24).allSatisfy { $0 == 1 })
    }

    func testASystemPromptThatFillsTheCacheIsRefused() async throws {
        var fixture = try SessionFixture(maxSize: 24)
        fixture.instructions = "a prompt of more than a few letters"
        let session = fixture.makeSession()

        await assertThrows(try await session.respond(to: "hi")) {
            // Marks and letters are tokens; 24 rows less 8 recent ones and 1 to evict.
            XCTAssertEqual(
                $0 as? H2OSessionError, .systemPromptTooLong(tokens: 43, atMost: 15))
        }
    }

    func testStretchesAreMeansOfEqualParts() async throws {
        let session = try SessionFixture(maxSize: 64).makeSession()
        _ = try await session.respond(to: "abcdefgh")

        let kept = await session.keptPositions

        XCTAssertEqual(kept.shares.count, 22)
        XCTAssertEqual(kept.stretches(5), [1, 1, 1, 1, 1])
        XCTAssertEqual(kept.stretches(100), kept.shares)
        XCTAssertEqual(kept.stretches(0), kept.shares)
    }
}
