import Foundation
import H2OKit
import H2OSessions
import H2OTestModels
import MLXLMCommon
import XCTest

final class SessionTests: XCTestCase {
    func testAReplyIsStreamedUntilTheModelEndsItsTurn() async throws {
        let fixture = try SessionFixture()
        fixture.model.script = [5, 6, 31, EchoModel.stop]

        let parts = try await fixture.makeSession().parts(to: "hi")

        XCTAssertEqual(parts.map(\.text), ["a", "b", " ", nil])
        let usage = try XCTUnwrap(parts.last?.usage)
        XCTAssertEqual(usage.stop, .endOfTurn)
        XCTAssertEqual(usage.readTokens, "<u:hi|\n<a:".count)
        XCTAssertEqual(usage.promptTokens, usage.readTokens)
        XCTAssertEqual(usage.generatedTokens, 4)
    }

    func testAReplyHasAtMostMaxTokens() async throws {
        let fixture = try SessionFixture()

        let reply = try await fixture.makeSession().respond(to: "hi")

        XCTAssertEqual(reply.content.count, 6)
        XCTAssertEqual(reply.usage.stop, .length)
        XCTAssertEqual(reply.usage.generatedTokens, 6)
    }

    func testTheTokensAreThoseOfUpstreamsIterator() async throws {
        let fixture = try SessionFixture(maxSize: 32)
        let prompt = String(repeating: "tell me more. ", count: 3)
        let tokenizer = TestTokenizer()
        let ids = try tokenizer.applyChatTemplate(
            messages: [["role": "user", "content": prompt]])
        let caches = (0 ..< 2).map { _ in H2OKVCache(fixture.configuration, .dense) }
        let model = EchoModel()
        // The last token of a prompt is read alone.
        _ = model(tokenArray(ids.dropLast()).expandedDimensions(axis: 0), cache: caches)
        let expected = Array(
            try TokenIterator(
                input: LMInput(tokens: tokenArray(ids.suffix(1))), model: model, cache: caches,
                parameters: GenerateParameters(maxTokens: 6, temperature: 0)))

        let text = try await fixture.makeSession().respond(to: prompt).content

        XCTAssertEqual(text, tokenizer.decode(tokenIds: expected, skipSpecialTokens: true))
    }

    func testAnEmptyPromptIsRefusedAndTheSessionGoesOn() async throws {
        let session = try SessionFixture().makeSession()

        await assertThrows(try await session.respond(to: ""), H2OSessionError.emptyPrompt)
        assertEqual(try await session.respond(to: "hi").content.count, 6)
    }

    func testASecondReplyOrAChangeDuringAReplyIsRefused() async throws {
        let fixture = try SessionFixture()
        let session = fixture.makeSession()
        fixture.background.close()
        let first = session.streamResponse(to: "hi")

        await assertThrows(try await session.respond(to: "ho"), H2OSessionError.busy)
        await assertThrows(try await session.setTranscript([]), H2OSessionError.busy)
        XCTAssertTrue(session.isResponding)

        fixture.background.open()
        var parts = 0
        for try await _ in first { parts += 1 }
        XCTAssertEqual(parts, 7)
        _ = try await session.respond(to: "ho")
        XCTAssertFalse(session.isResponding)
    }

    func testSpeedIsMeasuredFromTheFirstTokenOn() {
        XCTAssertEqual(H2OSession.Usage().tokensPerSecond, 0)
        var usage = H2OSession.Usage()
        (usage.generatedTokens, usage.timeToFirstToken) = (21, .seconds(3))
        usage.duration = .seconds(5)
        XCTAssertEqual(usage.tokensPerSecond, 10)
    }
}

final class SessionTurnsTests: XCTestCase {
    func testALaterTurnReadsOnlyWhatIsNewAfterTheEndOfTheOneBefore() async throws {
        for (reply, read) in [("a|", "\n<u:two|\n<a:"), ("a cut reply", "|\n<u:two|\n<a:")] {
            let fixture = try SessionFixture()
            let session = fixture.makeSession()
            fixture.model.script = TestTokenizer().tokens(of: reply)
            _ = try await session.respond(to: "one")
            let calls = fixture.model.calls.count

            _ = try await session.respond(to: "two")

            XCTAssertEqual(fixture.model.readTexts[calls ..< calls + 2].joined(), read)
        }
    }

    func testTheCachesSeeEachTokenOnceAndInOrder() async throws {
        var fixture = try SessionFixture(maxSize: 32)
        fixture.instructions = "be brief."
        let session = fixture.makeSession()
        for prompt in ["one", "two", "three"] {
            _ = try await session.respond(to: prompt)
        }

        assertEqual(await session.tokensSeen, fixture.model.calls.map(\.count).reduce(0, +))
        let systems = fixture.model.readText.components(separatedBy: "<s:")
        XCTAssertEqual(systems.count, 2, "the system prompt is read once")
    }

    func testWithoutATemplateTurnsAreLines() async throws {
        var fixture = try SessionFixture()
        fixture.hasTemplate = false
        fixture.instructions = "be brief."
        let session = fixture.makeSession()

        _ = try await session.respond(to: "one")
        let calls = fixture.model.calls.count
        _ = try await session.respond(to: "two")

        XCTAssertEqual(
            fixture.model.readTexts[0], "be brief.\n", "only the instructions are read")
        XCTAssertEqual(fixture.model.readTexts[1 ... 2], ["on", "e"])
        XCTAssertEqual(fixture.model.readTexts[calls ..< calls + 2], ["\ntw", "o"])
    }

    func testAResetSessionRepliesAsANewOne() async throws {
        let fixture = try SessionFixture()
        let session = fixture.makeSession()
        let first = try await session.respond(to: "one").content
        let second = try await session.respond(to: "one").content
        XCTAssertNotEqual(first, second, "a turn depends on the turn before it")

        await session.reset()

        assertEqual(try await session.respond(to: "one").content, first)
    }
}

final class SessionPinningTests: XCTestCase {
    func testTheSystemPromptStaysHoweverLongTheConversation() async throws {
        for hasTemplate in [true, false] {
            var fixture = try SessionFixture(maxSize: 40)
            fixture.hasTemplate = hasTemplate
            fixture.instructions = "you are brief."
            let session = fixture.makeSession()
            for _ in 0 ..< 12 { _ = try await session.respond(to: "tell me more") }

            let keptPositions = await session.keptPositions
            let tokensSeen = await session.tokensSeen

            XCTAssertGreaterThan(tokensSeen, 4 * 40)
            XCTAssertEqual(keptPositions.shares.count, tokensSeen)
            let prompt = hasTemplate ? "<s:you are brief.|" : "you are brief.\n"
            XCTAssertTrue(keptPositions.shares.prefix(prompt.count).allSatisfy { $0 == 1 })
            XCTAssertTrue(
                keptPositions.shares.suffix(8).allSatisfy { $0 == 1 }, "recent tokens stay too")
            XCTAssertEqual(keptPositions.shares.reduce(0, +), 40, accuracy: 1e-3)
        }
    }

    func testWithoutASystemPromptNothingIsPinned() async throws {
        let fixture = try SessionFixture(maxSize: 24)
        let session = fixture.makeSession()
        for _ in 0 ..< 12 { _ = try await session.respond(to: "tell me more") }

        let keptPositions = await session.keptPositions

        XCTAssertFalse(keptPositions.shares.prefix(24).allSatisfy { $0 == 1 })
    }

    func testASystemPromptThatFillsTheCacheIsRefused() async throws {
        var fixture = try SessionFixture(maxSize: 24)
        fixture.instructions = "a prompt of more than a few letters"
        let session = fixture.makeSession()

        await assertThrows(try await session.respond(to: "hi")) {
            // Each mark and each letter is a token. Of 24 rows, 8 are for recent tokens and 1 must
            // remain to evict.
            XCTAssertEqual(
                $0 as? H2OSessionError, .systemPromptTooLong(tokens: 43, atMost: 15))
        }
    }
}

final class SessionCancellationTests: XCTestCase {
    func testCancelEndsTheReplyAndKeepsWhatWasSaid() async throws {
        var fixture = try SessionFixture()
        fixture.maxTokens = 100_000
        let session = fixture.makeSession()

        var parts = [H2OSession.Part]()
        for try await part in session.streamResponse(to: "hi") {
            parts.append(part)
            if parts.count == 3 { await session.cancel() }
        }

        let usage = try XCTUnwrap(parts.last?.usage)
        XCTAssertEqual(usage.stop, .cancelled)
        assertEqual(await session.tokensSeen, usage.promptTokens + usage.generatedTokens)
        let said = parts.compactMap(\.text).joined()
        assertEqual(await session.transcript, [.user("hi"), .assistant(said, isCutOff: true)])
    }

    func testACanceledCallThrowsAndTheTranscriptKeepsOnlyWhatWasSaid() async throws {
        // The first call of the model reads the prompt, the second one its last token.
        for (calls, cancelsTask) in [(1, true), (1, false), (5, true), (5, false)] {
            var fixture = try SessionFixture()
            fixture.maxTokens = 100_000
            let session = fixture.makeSession()
            fixture.model.script = [5, EchoModel.stop]
            _ = try await session.respond(to: "one")
            let before = await session.transcript
            let begun = fixture.model.calls.count
            let (called, call) = AsyncStream<Void>.makeStream()
            fixture.model.onCall = { [model = fixture.model] in
                if model.calls.count == begun + calls { call.yield() }
            }
            let reply = Task { try await session.respond(to: "two") }
            for await _ in called { break }
            if cancelsTask { reply.cancel() } else { await session.cancel() }

            await assertThrows(try await reply.value) { XCTAssertTrue($0 is CancellationError) }

            let messages = await session.transcript
            let turn = messages.dropFirst(before.count)
            XCTAssertEqual(messages.prefix(before.count), before[...])
            if let answer = turn.last {
                XCTAssertEqual(turn.map(\.role), [.user, .assistant])
                XCTAssertTrue(answer.isCutOff)
                XCTAssertFalse(answer.text.isEmpty)
            }
            if calls == 5 { XCTAssertEqual(turn.count, 2) }
        }
    }

    func testAReaderThatLeavesEndsTheReply() async throws {
        var fixture = try SessionFixture()
        fixture.maxTokens = 100_000
        let session = fixture.makeSession()

        for try await _ in session.streamResponse(to: "hi") { break }
        var next = 0
        for try await _ in session.streamResponse(to: "ho") {
            next += 1
            if next == 3 { await session.cancel() }
        }

        XCTAssertGreaterThanOrEqual(next, 3, "the next reply does not wait for the previous one")
        XCTAssertLessThan(fixture.model.calls.count, 100_000)
    }

    func testAfterACancelledPrefillNothingOfItIsInTheNextPrompt() async throws {
        var fixture = try SessionFixture()
        fixture.promptChunk = 4
        let session = fixture.makeSession()
        let background = fixture.background
        let model = fixture.model
        model.onCall = {
            guard model.calls.count == 1 else { return }
            Thread.detachNewThread { background.close() }
            while !background.isClosed { Thread.sleep(forTimeInterval: 0) }
        }
        let reply = session.streamResponse(to: "abcdefgh")
        while !background.isClosed { await Task.yield() }
        await session.cancel()
        for try await part in reply {
            XCTAssertEqual(part.usage?.stop, .cancelled)
            XCTAssertEqual(part.usage?.generatedTokens, 0)
        }
        model.onCall = nil
        background.open()
        assertEqual(await session.transcript, [])
        let calls = model.calls.count

        _ = try await session.respond(to: "two")

        let text = model.readTexts[calls...].joined()
        XCTAssertTrue(text.hasPrefix("<u:two|\n<a:"), text)
    }

    func testTheSamePromptAfterACanceledPrefillGoesOnWhereItWasLeft() async throws {
        var fixture = try SessionFixture()
        (fixture.promptChunk, fixture.maxTokens) = (4, 1)
        let (session, model) = (fixture.makeSession(), fixture.model)
        model.onCall = { withUnsafeCurrentTask { $0?.cancel() } }
        await assertThrows(try await session.respond(to: "abcdefgh")) {
            XCTAssertTrue($0 is CancellationError)
        }
        model.onCall = nil

        _ = try await session.respond(to: "abcdefgh")

        XCTAssertTrue(model.readText.hasPrefix("<u:abcdefgh|\n<a:"), model.readText)
    }

    func testCancellingAnIdleSessionDoesNothing() async throws {
        let session = try SessionFixture().makeSession()
        await session.cancel()
        assertEqual(try await session.respond(to: "hi").content.count, 6)
    }
}
