import H2OKit
import H2OSessions
import H2OTestModels
import XCTest

/// What models of several families read in a conversation: what their chat template makes of
/// all of it, though each turn renders only what is new.
final class TemplateTests: XCTestCase {
    func testTheCachesReadWhatTheTemplateMakesOfTheConversation() async throws {
        for template in [ChatTemplate.qwen3, .llama3, .gemma] {
            let fixture = try TemplateFixture(template)
            fixture.scripted.replies = ["Hello.", "A heavy hitter.", "You are welcome."]
            let session = fixture.model.makeSession(instructions: "Be brief.")
            for prompt in ["Hi", "What is kept?", "Thanks"] {
                _ = try await session.respond(to: prompt)
            }

            let messages = await session.messages
            XCTAssertEqual(fixture.given, try fixture.rendered(messages), "\(template)")
        }
    }

    func testALaterTurnReadsOnlyWhatIsNew() async throws {
        for template in [ChatTemplate.qwen3, .llama3, .gemma] {
            let fixture = try TemplateFixture(template)
            fixture.scripted.replies = ["Hello.", "Yes."]
            let session = fixture.model.makeSession(instructions: "Be brief.")
            let first = try await session.respond(to: "Hi").usage
            let second = try await session.respond(to: "Hi").usage

            XCTAssertEqual(second.cachedTokens, first.promptTokens + first.generatedTokens)
            XCTAssertEqual(second.promptTokens, second.cachedTokens + second.readTokens)
            XCTAssertLessThan(second.readTokens, first.readTokens, "\(template)")
        }
    }

    func testInstructionsAndToolsAreTheOpeningThatStays() async throws {
        let fixture = try TemplateFixture(.qwen3, maxSize: 512)
        let session = fixture.model.makeSession(
            instructions: "Be brief.", tools: [try adder()],
            options: H2OSession.Options(maxTokens: 40))
        for _ in 0 ..< 12 {
            _ = try await session.respond(to: "Tell me about the caches of this model, please.")
        }

        let opening = try XCTUnwrap(fixture.given.components(separatedBy: "<|im_end|>").first)
        let tokens = TemplateTokenizer(.qwen3).encode(text: opening, addSpecialTokens: false)
        let kept = await session.keptPositions
        XCTAssertTrue(opening.contains("Adds."))
        XCTAssertGreaterThan(kept.shares.count, 2 * 512)
        XCTAssertTrue(kept.shares.prefix(tokens.count).allSatisfy { $0 == 1 })
    }

    func testAnAnswerEndsBeforeAStopString() async throws {
        let fixture = try TemplateFixture(.gemma)
        fixture.scripted.replies = ["one, two, three, END and more", "next"]
        let session = fixture.model.makeSession(
            options: H2OSession.Options(stopStrings: [", END", "more"]))

        let parts = try await session.parts(to: "Count")

        XCTAssertEqual(parts.compactMap(\.text).joined(), "one, two, three")
        XCTAssertEqual(parts.last?.usage?.stop, .stopString)
        let messages = await session.messages
        XCTAssertEqual(messages.last, .assistant("one, two, three"))
        let next = try await session.respond(to: "Go on").text
        XCTAssertEqual(next, "next")
    }
}
