#if canImport(FoundationModels, _version: 2) && (os(Linux) || H2O_TEST_FOUNDATION_MODELS)
    import Foundation
    import FoundationModels
    import H2OFoundationModels
    import H2OSessions
    import H2OTestModels
    import XCTest

    /// Checks which caches a request continues.
    @available(iOS 27, macOS 27, visionOS 27, *)
    final class ConversationsTests: XCTestCase {
        func testSessionsThatTakeTurnsReadNothingTwiceAlsoIfTheyBeginAlike() async throws {
            for other in ["be kind", nil] {
                let fixture = try Fixture(saying: "one", "two", "three", "four")
                let sessions = [fixture.session(), fixture.session(instructions: other)]
                for session in sessions { try await session.respond(to: "first") }
                for session in sessions {
                    let usage = try await session.respond(to: "second").usage
                    XCTAssertEqual(usage.readTokenCount, "\n<u:second|\n<a:".count)
                }
                XCTAssertEqual(sessions.map { $0.transcript.count }, [4, other == nil ? 4 : 5])
                XCTAssertEqual(fixture.loads.entries.count, 1)
            }
        }

        func testAnEarlierTranscriptIsReadFromItsLastWholeTurn() async throws {
            let fixture = try Fixture(saying: "one", "two", "three", "four")
            let session = fixture.session(instructions: "be kind")
            for text in ["first", "second", "third"] { try await session.respond(to: text) }
            let branch = fixture.session(after: session.transcript.prefix(3))
            let usage = try await branch.respond(to: "other").usage
            XCTAssertEqual(usage.readTokenCount, "\n<u:other|\n<a:".count)
        }

        func testASessionFindsItsCachesAfterAnotherWentBackInIt() async throws {
            let fixture = try Fixture(saying: "one", "two", "three", "four")
            let session = fixture.session()
            for text in ["first", "second"] { try await session.respond(to: text) }
            let branch = fixture.session(after: session.transcript.prefix(2))
            try await branch.respond(to: "other")
            let usage = try await session.respond(to: "third").usage
            XCTAssertEqual(usage.readTokenCount, "\n<u:third|\n<a:".count)
        }

        func testInstructionsThatSessionsShareAreReadOnce() async throws {
            let fixture = try Fixture(saying: "one", "two")
            for text in ["first", "second"] {
                let session = fixture.session(instructions: "be kind")
                let usage = try await session.respond(to: text).usage
                XCTAssertEqual(usage.input.cachedTokenCount > 0, text == "second")
            }
        }

        func testPrewarmingLeavesThePromptToRead() async throws {
            let fixture = try Fixture(saying: "one", "two")
            let session = fixture.session(instructions: "be kind")
            session.prewarm()
            session.prewarm()
            for text in ["<s:be kind|\n<u:", "<s:be kind|\n<u:hi|\n<a:one|"] {
                let usage = try await session.respond(to: "hi").usage
                XCTAssertEqual(usage.input.cachedTokenCount, text.count)
            }
            XCTAssertEqual(fixture.loads.entries.count, 1)
        }

        func testPrewarmingReadsToolsAndEarlierTurns() async throws {
            let fixture = try Fixture(.qwen3, saying: "Hello.", "Welcome.")
            let session = fixture.session(tools: [Adder()])
            try await session.respond(to: "Hi")
            let again = try Fixture(.qwen3, saying: "Welcome.")
            let resumed = again.session(after: session.transcript, tools: [Adder()])
            resumed.prewarm()
            let usage = try await resumed.respond(to: "Thanks").usage
            let read = "Thanks<|im_end|>\n<|im_start|>assistant\n"
            XCTAssertEqual(usage.readTokenCount, TestTokenizer(.qwen3).tokens(of: read).count)
            let all = again.model.readText
            for text in ["Adds two numbers", "Hello.", "Thanks"] {
                XCTAssertEqual(all.components(separatedBy: text).count - 1, 1, text)
            }
        }

        func testASessionThatMadeRoomForOthersGoesOnFromItsLastTurn() async throws {
            let fixture = try Fixture(saying: "a", "b", "c", "d", "e", "f")
            let sessions = ["x", "y", "z"].map { fixture.session(instructions: $0) }
            for session in sessions { try await session.respond(to: "first") }
            for session in sessions {
                let usage = try await session.respond(to: "second").usage
                XCTAssertEqual(usage.readTokenCount, "\n<u:second|\n<a:".count)
            }
        }

        func testATranscriptThatWasChangedIsReadAgain() async throws {
            let fixture = try Fixture(saying: "one", "two")
            let session = fixture.session()
            try await session.respond(to: "first")
            let changed = fixture.session(after: [.prompt("other"), .response("one")])
            let usage = try await changed.respond(to: "second").usage
            XCTAssertEqual(usage.input.cachedTokenCount, 0)
            XCTAssertEqual(
                usage.input.totalTokenCount, "<u:other|\n<a:one|\n<u:second|\n<a:".count)
        }

        func testAStreamThatNobodyReadsEndsTheReply() async throws {
            let fixture = try Fixture(saying: String(repeating: "a", count: 400), "two")
            for try await _ in fixture.session().streamResponse(to: "hi") { break }
            let next = try await fixture.session().respond(to: "hi")
            XCTAssertEqual(next.content, "two")
            XCTAssertLessThan(fixture.model.calls.count, 400)
        }
    }
#endif
