#if canImport(FoundationModels, _version: 2) && (os(Linux) || H2O_TEST_FOUNDATION_MODELS)
    import FoundationModels
    import H2OSessions
    import H2OTestModels
    import XCTest

    @testable import H2OFoundationModels

    @available(iOS 27, macOS 27, visionOS 27, *)
    final class LanguageModelTests: XCTestCase {
        func testAResponseIsWhatTheModelSays() async throws {
            let fixture = try Fixture(saying: "hello there")
            let session = fixture.session(instructions: "be brief")
            let response = try await session.respond(to: "hi")
            XCTAssertEqual(response.content, "hello there")
            XCTAssertEqual(session.transcript.count, 3)
        }

        func testAStreamHasAllTextSoFar() async throws {
            let fixture = try Fixture(saying: "abc")
            var snapshots = [String]()
            for try await snapshot in fixture.session().streamResponse(to: "hi") {
                snapshots.append(snapshot.content)
            }
            XCTAssertEqual(snapshots.last, "abc")
            XCTAssertTrue(zip(snapshots, snapshots.dropFirst()).allSatisfy { $1.hasPrefix($0) })
            XCTAssertGreaterThan(snapshots.count, 1)
        }

        func testTheContextHasNoLargestSize() async throws {
            let fixture = try Fixture(maxSize: 32, saying: "hello")
            let session = fixture.session(instructions: "be brief")
            for _ in 0 ..< 20 {
                fixture.model.replies.append("hello")
                try await session.respond(to: "tell me more of it")
            }
            XCTAssertEqual(fixture.model.lastCaches.map(\.offset).min() ?? 0 > 32 * 10, true)
        }

        func testInstructionsThatTheCacheCannotKeepExceedTheContextSize() async throws {
            let fixture = try Fixture(maxSize: 32)
            let session = fixture.session(instructions: String(repeating: "a", count: 64))
            let error = await failure(of: try await session.respond(to: "hi"))
            guard case LanguageModelError.contextSizeExceeded(let exceeded)? = error else {
                return XCTFail("\(String(describing: error))")
            }
            XCTAssertGreaterThan(exceeded.tokenCount, exceeded.contextSize)
            XCTAssertTrue(exceeded.debugDescription.contains("Shorten the system prompt"))
        }

        func testItCanCallToolsThinkAndFollowSchemas() throws {
            let capabilities = H2OLanguageModel(try Fixture().shared).capabilities
            XCTAssertTrue(capabilities.contains(.toolCalling))
            XCTAssertTrue(capabilities.contains(.reasoning))
            XCTAssertTrue(capabilities.contains(.guidedGeneration))
        }

        func testAFailedLoadIsTriedAgainByTheNextRequest() async throws {
            let fixture = try Fixture(failures: 1, saying: "one")
            let session = fixture.session()
            let error = await failure(of: try await session.respond(to: "a"))
            XCTAssertTrue(error is LoadFailure, "\(String(describing: error))")
            let response = try await session.respond(to: "a")
            XCTAssertEqual(response.content, "one")
        }

        func testAModelThatWasUnloadedIsLoadedAgain() async throws {
            let fixture = try Fixture(saying: "one", "two")
            let session = fixture.session()
            _ = try await session.respond(to: "a")
            await H2OLanguageModel(fixture.shared).unload()
            let again = try await session.respond(to: "b")
            XCTAssertEqual(again.content, "two")
            XCTAssertEqual(again.usage.input.cachedTokenCount, 0)
            XCTAssertEqual(fixture.loads.entries.count, 2)
        }

        func testWithoutALimitAResponseIsAsLongAsItIs() async throws {
            let long = String(repeating: "abcdefgh", count: 100)
            let fixture = try Fixture(saying: long)
            let response = try await fixture.session().respond(to: "hi")
            XCTAssertEqual(response.content, long)
            XCTAssertGreaterThan(response.usage.output.totalTokenCount, 512)
        }

        func testACanceledRequestThrowsAndIsNoResponse() async throws {
            let endless = H2OModel.ScriptStep.delay(.seconds(3600))
            for steps in [[endless], ["Once upon ", endless]] {
                let session = LanguageModelSession(model: H2OLanguageModel(.scripted(steps)))
                let request = Task { try await session.respond(to: "hi").content }
                for _ in 0 ..< 100 { await Task.yield() }
                request.cancel()
                let error = await failure(of: try await request.value)
                XCTAssertTrue(error is CancellationError, "\(String(describing: error))")
                XCTAssertEqual(session.transcript.count, 0)
            }
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    final class ReasoningTests: XCTestCase {
        func testThoughtsAreAnEntryBeforeTheResponse() async throws {
            let fixture = try Fixture(.qwen3, saying: "<think>\n7 * 13\n</think>\n\nNo.")
            let session = fixture.session()
            let response = try await session.respond(to: "Is 91 prime?")
            XCTAssertEqual(response.content, "No.")
            guard case .reasoning(let thoughts) = session.transcript[1],
                case .text(let text) = thoughts.segments.first
            else { return XCTFail("\(session.transcript)") }
            XCTAssertEqual(text.content, "7 * 13")
            XCTAssertGreaterThan(response.usage.output.reasoningTokenCount, 0)
            XCTAssertGreaterThan(
                response.usage.output.totalTokenCount,
                response.usage.output.reasoningTokenCount)
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    final class ErrorTests: XCTestCase {
        func testOnlyWhatCanNeverBeReadExceedsTheContextSize() throws {
            let errors: [H2OSessionError] = [
                .systemPromptTooLong(tokens: 70, atMost: 60),
                .promptTooLong(tokens: 70, atMost: 60),
            ]
            for error in errors {
                guard case .contextSizeExceeded(let exceeded) = LanguageModelError(engine: error)
                else { return XCTFail("\(error)") }
                XCTAssertEqual(exceeded.tokenCount, 70)
                XCTAssertEqual(exceeded.contextSize, 60)
                XCTAssertEqual(exceeded.debugDescription, error.errorDescription)
            }
            XCTAssertNil(LanguageModelError(engine: H2OSessionError.busy))
        }

        func testASchemaThatCannotBeFollowedIsAnUnsupportedGuide() {
            let error = H2OSessionError.invalidSchema(.unsupported(keyword: "not", place: "/a"))
            guard case .unsupportedGenerationGuide(let guide) = LanguageModelError(engine: error)
            else { return XCTFail("\(error)") }
            XCTAssertEqual(guide.debugDescription, error.errorDescription)
        }
    }
#endif
