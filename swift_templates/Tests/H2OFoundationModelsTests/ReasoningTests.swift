#if os(Linux) && canImport(FoundationModels, _version: 2)
    import FoundationModels
    import H2OFoundationModels
    import XCTest

    final class ReasoningTests: XCTestCase {
        func testThoughtsAreAnEntryBeforeTheResponse() async throws {
            let fixture = try ScriptedFixture(saying: "<think>\n7 * 13\n</think>\n\nNo.")
            let session = LanguageModelSession(model: fixture.model)
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

        func testALevelTurnsThinkingOff() async throws {
            for (level, thinks) in [(nil, true), (.custom("no_think"), false)]
                as [(ContextOptions.ReasoningLevel?, Bool)]
            {
                let fixture = try ScriptedFixture()
                let session = LanguageModelSession(model: fixture.model)
                let context = ContextOptions(reasoningLevel: level)
                try await session.respond(
                    to: "Hello", options: GenerationOptions(maximumResponseTokens: 1),
                    contextOptions: context)
                XCTAssertEqual(
                    fixture.given.contains("<think>\n\n</think>"), !thinks, "\(thinks)")
            }
        }
    }
#endif
