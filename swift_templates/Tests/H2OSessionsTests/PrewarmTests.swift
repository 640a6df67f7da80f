import H2OKit
import H2OTestModels
import XCTest

@testable import H2OSessions

/// Tests reading before the user's first message.
final class PrewarmTests: XCTestCase {
    private func session(
        _ change: (inout SessionFixture) -> Void = { _ in }
    ) throws -> (EchoModel, H2OSession) {
        var fixture = try SessionFixture()
        fixture.instructions = "be brief"
        change(&fixture)
        return (fixture.model, fixture.makeSession())
    }

    func testTheFirstReplyReadsThePromptAlone() async throws {
        for limits in [H2OSnapshotLimits(), .none] {
            let (_, cold) = try session { $0.snapshots = limits }
            let (_, warm) = try session { $0.snapshots = limits }
            try await warm.prewarm()
            try await warm.prewarm()

            let reply = try await warm.respond(to: "hi")

            XCTAssertEqual(reply.usage.cachedTokens, "<s:be brief|\n<u:".count)
            XCTAssertEqual(reply.usage.readTokens, "hi|\n<a:".count)
            assertEqual(try await cold.respond(to: "hi").content, reply.content)
            let next = try await warm.respond(to: "go on")
            let expected = try await cold.respond(to: "go on")
            XCTAssertEqual(next.content, expected.content)
            XCTAssertEqual(next.usage.readTokens, expected.usage.readTokens)
        }
    }

    func testItReadsInChunksAndPinsTheInstructions() async throws {
        let (model, session) = try session { $0.promptChunk = 5 }
        try await session.prewarm()
        XCTAssertEqual(model.calls.map(\.count), [5, 5, 5, 1])
        for _ in 0 ..< 4 { _ = try await session.respond(to: "tell me more of it") }
        let keptPositions = await session.keptPositions
        XCTAssertGreaterThan(keptPositions.shares.count, 64)
        XCTAssertEqual(keptPositions.shares.prefix(16), Array(repeating: 1, count: 16)[...])
    }

    func testMessagesThatWereSetAreReadUpToTheNextOfTheUser() async throws {
        let (model, session) = try session()
        try await session.setTranscript([.system("be brief"), .user("hi"), .assistant("hello")])
        try await session.prewarm()
        let read = model.calls.flatMap { $0 }.count
        XCTAssertEqual(read, "<s:be brief|\n<u:hi|\n<a:hello|\n<u:".count)
        let usage = try await session.respond(to: "more").usage
        XCTAssertEqual(usage.readTokens, "more|\n<a:".count)
    }

    func testOtherMessagesThanThoseReadAheadAreReadFromWhereTheyDiffer() async throws {
        let (_, session) = try session()
        try await session.prewarm()
        try await session.setTranscript([.system("be kind")])
        let usage = try await session.respond(to: "hi").usage
        XCTAssertEqual(usage.cachedTokens, 0)
        XCTAssertEqual(usage.readTokens, "<s:be kind|\n<u:hi|\n<a:".count)
    }

    func testAConversationInWhichNothingWasSaidReadsNothing() async throws {
        let (model, session) = try session { $0.instructions = nil }
        try await session.prewarm()
        XCTAssertEqual(model.calls, [])
    }

    func testInstructionsThatDoNotFitAreAnErrorNowAndLater() async throws {
        let (_, session) = try session { $0.instructions = String(repeating: "a", count: 80) }
        for work in [{ try await session.prewarm() }, { _ = try await session.respond(to: "a") }] {
            await assertThrows(try await work()) { error in
                guard case .systemPromptTooLong = error as? H2OSessionError else {
                    return XCTFail("\(error)")
                }
            }
        }
    }

    func testBeforeTheFirstReplyThereIsNothingToSave() async throws {
        let (_, session) = try session()
        let folder = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
        for _ in 0 ..< 2 {
            await assertThrows(
                try await session.save(to: folder), H2OSessionError.nothingToSave)
            try await session.prewarm()
        }
    }
}
