import Foundation
import H2OKit
import H2OSessions
import H2OTestModels
import XCTest

final class SessionCancellationTests: XCTestCase {
    func testCancelEndsTheReplyAndKeepsWhatWasSaid() async throws {
        var fixture = try SessionFixture()
        fixture.maxTokens = 100_000
        let session = fixture.makeSession()

        var parts = [H2OSession.Part]()
        for try await part in await session.streamResponse(to: "hi") {
            parts.append(part)
            if parts.count == 3 { await session.cancel() }
        }

        let usage = try XCTUnwrap(parts.last?.usage)
        XCTAssertEqual(usage.stop, .cancelled)
        let seen = await session.tokensSeen
        XCTAssertEqual(seen, usage.promptTokens + usage.generatedTokens)
        let said = await session.messages
        XCTAssertEqual(said, [.user("hi"), .assistant(parts.compactMap(\.text).joined())])
    }

    func testAReaderThatLeavesEndsTheReply() async throws {
        var fixture = try SessionFixture()
        fixture.maxTokens = 100_000
        let session = fixture.makeSession()

        for try await _ in await session.streamResponse(to: "hi") { break }
        var next = 0
        for try await _ in await session.streamResponse(to: "ho") {
            next += 1
            if next == 3 { await session.cancel() }
        }

        XCTAssertGreaterThanOrEqual(next, 3, "the next reply need not wait for the one before")
        XCTAssertLessThan(fixture.model.calls.count, 100_000)
    }

    func testAfterACancelledPrefillTheRestIsReadFirst() async throws {
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
        let reply = await session.streamResponse(to: "abcdefgh")
        while !background.isClosed { await Task.yield() }
        await session.cancel()
        for try await part in reply {
            XCTAssertEqual(part.usage?.stop, .cancelled)
            XCTAssertEqual(part.usage?.generatedTokens, 0)
        }
        model.onCall = nil
        background.open()

        _ = try await session.respond(to: "two")

        let said = LetterTokenizer().decode(
            tokenIds: model.calls.flatMap { $0 }, skipSpecialTokens: false)
        XCTAssertTrue(said.hasPrefix("<u:abcdefgh|\n<a:|\n<u:two|\n<a:"), said)
    }

    func testCancellingAnIdleSessionDoesNothing() async throws {
        let session = try SessionFixture().makeSession()
        await session.cancel()
        let text = try await session.respond(to: "hi").text
        XCTAssertEqual(text.count, 6)
    }
}
