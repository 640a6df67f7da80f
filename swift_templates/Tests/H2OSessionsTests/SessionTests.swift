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

        XCTAssertEqual(reply.text.count, 6)
        XCTAssertEqual(reply.usage.stop, .length)
        XCTAssertEqual(reply.usage.generatedTokens, 6)
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

        let text = try await fixture.makeSession().respond(to: prompt).text

        XCTAssertEqual(text, tokenizer.decode(tokenIds: expected, skipSpecialTokens: true))
    }

    func testALongPromptIsReadInChunks() async throws {
        var fixture = try SessionFixture(maxSize: 32)
        fixture.promptChunk = 16
        let prompt = String(repeating: "abcdefgh", count: 6)

        let session = fixture.makeSession()
        _ = try await session.respond(to: prompt)

        let sizes = fixture.model.calls.map(\.count)
        XCTAssertEqual(sizes.prefix(4), [16, 16, 16, 8])
        let seen = await session.tokensSeen
        XCTAssertEqual(seen, 56 + 6)
    }

    func testAnEmptyPromptIsRefusedAndTheSessionGoesOn() async throws {
        let session = try SessionFixture().makeSession()

        await assertThrows(try await session.respond(to: "")) {
            XCTAssertEqual($0 as? H2OSessionError, .emptyPrompt)
        }
        let text = try await session.respond(to: "hi").text
        XCTAssertEqual(text.count, 6)
    }

    func testASecondReplyAtTheSameTimeIsRefused() async throws {
        let fixture = try SessionFixture()
        let session = fixture.makeSession()
        fixture.background.close()
        let first = await session.streamResponse(to: "hi")

        await assertThrows(try await session.respond(to: "ho")) {
            XCTAssertEqual($0 as? H2OSessionError, .busy)
        }
        let isResponding = await session.isResponding
        XCTAssertTrue(isResponding)

        fixture.background.open()
        var parts = 0
        for try await _ in first { parts += 1 }
        XCTAssertEqual(parts, 7)
        _ = try await session.respond(to: "ho")
        let goesOn = await session.isResponding
        XCTAssertFalse(goesOn)
    }

    func testSpeedIsMeasuredFromTheFirstTokenOn() {
        XCTAssertEqual(H2OSession.Usage().tokensPerSecond, 0)
        let usage = H2OSession.Usage(
            readTokens: 10, generatedTokens: 21, timeToFirstToken: .seconds(3),
            duration: .seconds(5))
        XCTAssertEqual(usage.tokensPerSecond, 10)
    }
}
