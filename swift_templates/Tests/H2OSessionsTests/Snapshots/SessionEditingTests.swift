import Foundation
import H2OKit
import H2OSessions
import XCTest

final class SessionEditingTests: XCTestCase {
    private let prompts = ["one", "two", "three", "four", "five", "six"]

    /// Returns a session that has replied to each prompt, and the number of tokens seen after each
    /// reply.
    private func talk(
        _ fixture: SessionFixture, _ prompts: some Sequence<String>
    ) async throws -> (session: H2OSession, tokensSeen: [Int]) {
        let session = fixture.makeSession()
        var tokensSeen = [Int]()
        for prompt in prompts {
            _ = try await session.respond(to: prompt)
            tokensSeen.append(await session.tokensSeen)
        }
        return (session, tokensSeen)
    }

    func testAWarningMovesSnapshotsToFilesAndTheBackgroundForgetsThem() async throws {
        let warning = Notification.Name("h2o.warning.\(UUID().uuidString)")
        for isInBackground in [false, true] {
            var fixture = try SessionFixture()
            fixture.instructions = "be brief"
            fixture.pressure = MemoryPressure([warning])
            let (session, tokensSeen) = try await talk(fixture, prompts.prefix(3))
            let before = await session.conversation.snapshots
            XCTAssertEqual(before.bytes.files, 0)
            if isInBackground { fixture.background.close() }

            NotificationCenter.default.post(name: warning, object: nil)

            let newest = before.bytes.memory / before.tokens.count
            while await session.conversation.snapshots.bytes.memory > newest { await Task.yield() }
            let after = await session.conversation.snapshots
            XCTAssertEqual(after.bytes.files > 0, !isInBackground)
            XCTAssertEqual(after.tokens, isInBackground ? before.tokens.suffix(1) : before.tokens)
            fixture.background.open()
            try await session.keep(3)
            let usage = try await session.respond(to: "other").usage
            XCTAssertEqual(usage.cachedTokens, isInBackground ? 0 : tokensSeen[0])
        }
    }

    func testAChangeReadsOnlyWhatComesAfterTheSnapshotBeforeIt() async throws {
        for limits in [H2OSnapshotLimits(), H2OSnapshotLimits(memory: 0, files: 1 << 20), .none] {
            var fixture = try SessionFixture(maxSize: 32)
            fixture.snapshots = limits
            let (session, tokensSeen) = try await talk(fixture, prompts)
            let (expected, _) = try await talk(
                try SessionFixture(maxSize: 32), prompts.prefix(3))

            try await session.keep(6)
            let response = try await session.respond(to: "other")

            let expectedResponse = try await expected.respond(to: "other")
            guard limits != .none else {
                XCTAssertEqual(response.usage.cachedTokens, 0, "all is read again")
                continue
            }
            XCTAssertEqual(response.usage.cachedTokens, tokensSeen[2])
            XCTAssertEqual(response.usage.readTokens, expectedResponse.usage.readTokens)
            let (edited, told) = (await session.transcript, await expected.transcript)
            XCTAssertEqual(edited, told)
        }
    }

    func testTurnsAfterAnotherMessageAreReadAgainAlsoIfTheyAreLongerThanAPrompt() async throws {
        var fixture = try SessionFixture(maxSize: 32)
        fixture.positions = 20
        let (session, tokensSeen) = try await talk(fixture, prompts)
        var messages = await session.transcript
        messages[2].text = "other"

        try await session.setTranscript(messages)
        let usage = try await session.respond(to: "seven").usage

        XCTAssertEqual(usage.cachedTokens, tokensSeen[0], "the second prompt differs")
        XCTAssertGreaterThan(usage.readTokens, 20)
        let long = "this is longer than the model's positions"
        await assertThrows(try await session.respond(to: long)) { error in
            guard case H2OSessionError.promptTooLong(_, 20)? = error as? H2OSessionError else {
                return XCTFail("\(error)")
            }
        }
    }

    func testARegeneratedReplyReadsItsPromptAlone() async throws {
        for turns in [1, 6] {
            let (session, tokensSeen) = try await talk(
                try SessionFixture(maxSize: 32), prompts.prefix(turns))
            let before = await session.transcript

            var usage: H2OSession.Usage?
            for try await part in session.regenerate() { usage = part.usage ?? usage }

            assertEqual(await session.transcript, before, "the sampling is greedy")
            XCTAssertEqual(usage?.cachedTokens, ([0] + tokensSeen)[turns - 1])
        }
    }

    func testInstructionsAreReadOnce() async throws {
        var fixture = try SessionFixture(maxSize: 48)
        fixture.instructions = "be brief."
        let (session, _) = try await talk(fixture, ["one", "two"])
        var messages = await session.transcript
        messages[1].text = "other"

        try await session.setTranscript(messages)

        let usage = try await session.respond(to: "three").usage
        XCTAssertEqual(usage.cachedTokens, "<s:be brief.|\n<u:".count)
    }

    func testWithNothingToAnswerNothingIsRegenerated() async throws {
        let session = try SessionFixture().makeSession()

        await assertThrows(
            try await session.regenerate().reduce(0) { count, _ in count + 1 },
            H2OSessionError.emptyPrompt)
    }

    func testAForkAndItsOriginalGoOnByThemselves() async throws {
        let (session, tokensSeen) = try await talk(try SessionFixture(maxSize: 32), prompts)
        let (twin, _) = try await talk(try SessionFixture(maxSize: 32), prompts)

        let fork = try await session.fork()
        let forkReply = try await fork.respond(to: "left")
        let reply = try await session.respond(to: "right")

        assertEqual(
            try await twin.respond(to: "right").content, reply.content, "the fork changed nothing")
        XCTAssertEqual(forkReply.usage.cachedTokens, tokensSeen[5])
        let (messages, forkMessages) = (await session.transcript, await fork.transcript)
        XCTAssertEqual(messages.prefix(12), forkMessages.prefix(12))
        XCTAssertEqual([messages[12].text, forkMessages[12].text], ["right", "left"])

        try await fork.keep(4)  // the fork returns to where its original was
        assertEqual(try await fork.respond(to: "other").usage.cachedTokens, tokensSeen[1])
    }

    func testAResetForgetsTheSnapshots() async throws {
        let (session, _) = try await talk(try SessionFixture(maxSize: 32), prompts)
        let messages = await session.transcript
        await session.reset()

        try await session.setTranscript(messages)

        assertEqual(try await session.respond(to: "other").usage.cachedTokens, 0)
    }
}
