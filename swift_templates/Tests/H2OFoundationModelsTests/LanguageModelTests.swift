#if os(Linux) && canImport(FoundationModels, _version: 2)
    import FoundationModels
    import H2OFoundationModels
    import H2OSessions
    import H2OTestModels
    import XCTest

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

        func testASecondRequestReadsWhatIsNew() async throws {
            let fixture = try Fixture(saying: "one", "two")
            let session = fixture.session(instructions: "be brief")
            let first = try await session.respond(to: "a").usage
            let second = try await session.respond(to: "b").usage
            XCTAssertEqual(first.input.cachedTokenCount, 0)
            XCTAssertEqual(
                second.input.cachedTokenCount,
                first.input.totalTokenCount + first.output.totalTokenCount)
            XCTAssertEqual(
                second.input.totalTokenCount - second.input.cachedTokenCount,
                "\n<u:b|\n<a:".count)
        }

        func testTheContextHasNoLargestSize() async throws {
            let fixture = try Fixture(maxSize: 32, saying: "hello")
            let session = fixture.session(instructions: "be brief")
            for _ in 0 ..< 20 {
                fixture.say("hello")
                try await session.respond(to: "tell me more of it")
            }
            XCTAssertEqual(fixture.model.given.map(\.offset).min() ?? 0 > 32 * 10, true)
        }

        func testInstructionsThatTheCacheCannotKeepExceedTheContextSize() async throws {
            let fixture = try Fixture(maxSize: 32)
            let session = fixture.session(instructions: String(repeating: "a", count: 64))
            let error = await failure(of: try await session.respond(to: "hi"))
            guard case LanguageModelError.contextSizeExceeded(let exceeded)? = error else {
                return XCTFail("\(String(describing: error))")
            }
            XCTAssertGreaterThan(exceeded.tokenCount, exceeded.contextSize)
            XCTAssertTrue(exceeded.debugDescription.contains("Shorten it"))
        }

        func testASchemaWithoutAnEngineForItIsAMissingCapability() async throws {
            try XCTSkipIf(hasGrammarEngine, "This version of mlx-swift-lm has an engine.")
            let fixture = try Fixture(saying: "one")
            let error = await failure(
                of: try await fixture.session().respond(to: "a", generating: Int.self))
            guard case LanguageModelError.unsupportedCapability(let missing)? = error else {
                return XCTFail("\(String(describing: error))")
            }
            XCTAssertEqual(missing.capability, .guidedGeneration)
            XCTAssertTrue(missing.debugDescription.contains("--upstream-version"))
        }

        func testTheModelIsLoadedOnceForAllSessions() async throws {
            let fixture = try Fixture(saying: "one", "two")
            fixture.session().prewarm()
            _ = try await fixture.session().respond(to: "a")
            _ = try await fixture.session().respond(to: "b")
            XCTAssertEqual(fixture.loads.count, 1)
        }

        func testAFailedLoadIsTriedAgainByTheNextRequest() async throws {
            let fixture = try Fixture(saying: "one")
            fixture.loads.failures = 1
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
            await fixture.shared.unload()
            let again = try await session.respond(to: "b")
            XCTAssertEqual(again.content, "two")
            XCTAssertEqual(again.usage.input.cachedTokenCount, 0)
            XCTAssertEqual(fixture.loads.count, 2)
        }

        func testUsageIsNotReportedWhereTheSystemCannotTakeIt() async throws {
            let fixture = try Fixture(saying: "one")
            let model = H2OLanguageModel(fixture.shared, reportsUsage: false)
            let response = try await LanguageModelSession(model: model).respond(to: "a")
            XCTAssertEqual(response.usage.input.totalTokenCount, 0)
        }
    }
#endif
