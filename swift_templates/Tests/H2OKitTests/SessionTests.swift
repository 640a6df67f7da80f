import H2OKit
import MLXLMCommon
import XCTest

final class SessionTests: XCTestCase {
    func testAReplyIsStreamedUntilTheModelEndsItsTurn() async throws {
        let fixture = try SessionFixture()
        fixture.model.script = [5, 6, 31, EchoModel.stop]

        var parts = [H2OReplyPart]()
        for try await part in await fixture.makeSession().reply(to: "hi") { parts.append(part) }

        XCTAssertEqual(parts.map(\.text), ["a", "b", " ", ""])
        let last = try XCTUnwrap(parts.last?.statistics)
        XCTAssertEqual(last.stop, .endOfTurn)
        XCTAssertEqual(last.promptTokens, "<u:hi|\n<a:".count)
        XCTAssertEqual(last.replyTokens, 4)
        XCTAssertEqual(parts.dropLast().compactMap(\.statistics.stop), [])
    }

    func testAReplyHasAtMostMaxTokens() async throws {
        let fixture = try SessionFixture()

        let (text, statistics) = try await fixture.makeSession().completeReply(to: "hi")

        XCTAssertEqual(text.count, 6)
        XCTAssertEqual(statistics.stop, .length)
        XCTAssertEqual(statistics.replyTokens, 6)
    }

    func testTheTokensAreThoseOfUpstreamsIterator() async throws {
        let fixture = try SessionFixture(maxSize: 32)
        let prompt = String(repeating: "tell me more. ", count: 3)
        let tokenizer = LetterTokenizer()
        let ids = try tokenizer.applyChatTemplate(
            messages: [["role": "user", "content": prompt]])
        let caches = (0 ..< 2).map { _ in H2OKVCache(configuration: fixture.configuration) }
        let expected = Array(
            try TokenIterator(
                input: LMInput(tokens: tokenArray(ids)), model: EchoModel(), cache: caches,
                parameters: GenerateParameters(maxTokens: 6, temperature: 0)))

        let (text, _) = try await fixture.makeSession().completeReply(to: prompt)

        XCTAssertEqual(text, tokenizer.decode(tokenIds: expected, skipSpecialTokens: true))
    }

    func testALongPromptIsReadInChunks() async throws {
        var fixture = try SessionFixture(maxSize: 32)
        fixture.prefillStep = 16
        let prompt = String(repeating: "abcdefgh", count: 6)

        let session = fixture.makeSession()
        _ = try await session.completeReply(to: prompt)

        let sizes = fixture.model.calls.map(\.count)
        XCTAssertEqual(sizes.prefix(4), [16, 16, 16, 8])
        let seen = await session.tokensSeen
        XCTAssertEqual(seen, 56 + 6)
    }

    func testAnEmptyPromptIsRefusedAndTheSessionGoesOn() async throws {
        let session = try SessionFixture().makeSession()

        await assertThrows(try await session.completeReply(to: "")) {
            XCTAssertEqual($0 as? H2OSessionError, .emptyPrompt)
        }
        let (text, _) = try await session.completeReply(to: "hi")
        XCTAssertEqual(text.count, 6)
    }

    func testASecondReplyAtTheSameTimeIsRefused() async throws {
        let fixture = try SessionFixture()
        let session = fixture.makeSession()
        fixture.background.close()
        let first = await session.reply(to: "hi")

        await assertThrows(try await session.completeReply(to: "ho")) {
            XCTAssertEqual($0 as? H2OSessionError, .busy)
        }

        fixture.background.open()
        var parts = 0
        for try await _ in first { parts += 1 }
        XCTAssertEqual(parts, 7)
    }

    func testSpeedIsMeasuredFromTheFirstTokenOn() {
        var statistics = H2OReplyStatistics()
        XCTAssertEqual(statistics.tokensPerSecond, 0)
        statistics = .init(promptTokens: 10, replyTokens: 21, prefillSeconds: 3, decodeSeconds: 2)
        XCTAssertEqual(statistics.tokensPerSecond, 10)
    }
}
