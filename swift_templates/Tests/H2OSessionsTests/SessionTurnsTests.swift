import H2OKit
import H2OSessions
import H2OTestModels
import XCTest

final class SessionTurnsTests: XCTestCase {
    func testALaterTurnReadsOnlyWhatIsNew() async throws {
        let fixture = try SessionFixture()
        let session = fixture.makeSession()
        fixture.model.script = [5, EchoModel.stop]
        _ = try await session.respond(to: "one")
        let calls = fixture.model.calls.count

        _ = try await session.respond(to: "two")

        XCTAssertEqual(text(fixture.model.calls[calls]), "\n<u:two|\n<a:")
    }

    func testATurnThatWasCutIsEndedBeforeTheNext() async throws {
        let fixture = try SessionFixture()
        let session = fixture.makeSession()
        _ = try await session.respond(to: "one")
        let calls = fixture.model.calls.count

        _ = try await session.respond(to: "two")

        XCTAssertEqual(text(fixture.model.calls[calls]), "|\n<u:two|\n<a:")
    }

    func testTheCachesSeeEachTokenOnceAndInOrder() async throws {
        var fixture = try SessionFixture(maxSize: 32)
        fixture.instructions = "be brief."
        let session = fixture.makeSession()
        for prompt in ["one", "two", "three"] {
            _ = try await session.respond(to: prompt)
        }

        let seen = await session.tokensSeen
        XCTAssertEqual(fixture.model.calls.map(\.count).reduce(0, +), seen)
        let systems = text(fixture.model.calls.flatMap { $0 }).components(separatedBy: "<s:")
        XCTAssertEqual(systems.count, 2, "the system prompt comes once")
    }

    func testWithoutATemplateTurnsAreLines() async throws {
        var fixture = try SessionFixture()
        fixture.hasTemplate = false
        fixture.instructions = "be brief."
        let session = fixture.makeSession()

        _ = try await session.respond(to: "one")
        let calls = fixture.model.calls.count
        _ = try await session.respond(to: "two")

        XCTAssertEqual(text(fixture.model.calls[0]), "be brief.\n", "the instructions alone")
        XCTAssertEqual(text(fixture.model.calls[1]), "one")
        XCTAssertEqual(text(fixture.model.calls[calls]), "\ntwo")
    }

    func testAResetSessionRepliesAsANewOne() async throws {
        let fixture = try SessionFixture()
        let session = fixture.makeSession()
        let first = try await session.respond(to: "one").text
        let second = try await session.respond(to: "one").text
        XCTAssertNotEqual(first, second, "a turn depends on the one before")

        await session.reset()

        let again = try await session.respond(to: "one").text
        XCTAssertEqual(again, first)
    }

    private func text(_ tokens: [Int]) -> String {
        LetterTokenizer().decode(tokenIds: tokens, skipSpecialTokens: false)
    }
}
