import Foundation
import H2OKit
import H2OTestModels
import MLXLMCommon
import XCTest

@testable import H2OSessions

/// Tests that the caches of a conversation read the same tokens as if the chat template rendered
/// the whole conversation, although each turn renders only new messages. Uses templates of several
/// families.
final class TemplateTests: XCTestCase {
    func testTheCachesReadWhatTheTemplateMakesOfTheConversation() async throws {
        for template in [ChatTemplate.qwen3, .llama3, .gemma] {
            let fixture = try SessionFixture(template)
            fixture.model.replies = ["Hello.", "A heavy hitter.", "You are welcome."]
            let session = fixture.makeModel().makeSession(instructions: "Be brief.")
            for prompt in ["Hi", "What is kept?", "Thanks"] {
                _ = try await session.respond(to: prompt)
            }

            let messages = await session.transcript
            XCTAssertEqual(fixture.model.readText, try fixture.rendered(messages), "\(template)")
        }
    }

    func testInstructionsAndToolsAreTheOpeningThatStays() async throws {
        let fixture = try SessionFixture(.qwen3, maxSize: 512)
        let long = String(repeating: "word ", count: 40)
        fixture.model.replies = [String](repeating: long, count: 12)
        let session = fixture.makeModel().makeSession(
            instructions: "Be brief.", tools: [try adder()],
            options: H2OSession.Options(maxTokens: 40))
        for _ in 0 ..< 12 {
            _ = try await session.respond(to: "Tell me about the caches of this model, please.")
        }

        let opening = fixture.model.readText.components(separatedBy: "<|im_end|>")[0]
        let tokens = TestTokenizer(.qwen3).tokens(of: opening)
        let keptPositions = await session.keptPositions
        XCTAssertTrue(opening.contains("Adds."))
        XCTAssertGreaterThan(keptPositions.shares.count, 2 * 512)
        XCTAssertTrue(keptPositions.shares.prefix(tokens.count).allSatisfy { $0 == 1 })
    }

    func testAnAnswerEndsBeforeAStopString() async throws {
        let fixture = try SessionFixture(.gemma, saying: "one, two, three, END and more", "next")
        let session = fixture.makeModel().makeSession(
            options: H2OSession.Options(stopStrings: [", END", "more"]))

        let parts = try await session.parts(to: "Count")

        XCTAssertEqual(parts.compactMap(\.text).joined(), "one, two, three")
        XCTAssertEqual(parts.last?.usage?.stop, .stopString)
        assertEqual(await session.transcript.last, .assistant("one, two, three"))
        assertEqual(try await session.respond(to: "Go on").content, "next")
    }
}

extension SessionFixture {
    /// The number of tokens of a conversation without its last message, and of the beginning of the
    /// reply.
    func tokens(before reply: String = "<|im_start|>assistant", in session: H2OSession) async throws
        -> Int
    {
        let text = try rendered(await session.transcript.dropLast()) + "\n" + reply
        return TestTokenizer(try XCTUnwrap(template)).tokens(of: text).count
    }

    /// The messages as the template renders them, up to the end of the last message.
    func rendered(_ messages: [H2OMessage], tools: [H2OTool] = []) throws -> String {
        let template = try XCTUnwrap(template)
        let text = try template.render(
            messages.map(\.fields),
            tools: tools.isEmpty ? nil : tools.map(\.definition.specification))
        let end = text.range(of: template.stop, options: .backwards)
        return String(text[..<(end?.upperBound ?? text.endIndex)])
    }
}

extension JSONValue {
    init(_ text: String) throws {
        self = try JSONDecoder().decode(Self.self, from: Data(text.utf8))
    }
}

/// A tool that adds two numbers.
///
/// - Parameter number: the schema of a number
func adder(of number: String = "{}") throws -> H2OTool {
    let parameters = try JSONValue(
        #"{"type": "object", "required": ["a", "b"], "properties":"#
            + #" {"a": \#(number), "b": \#(number)}}"#)
    return try H2OTool(name: "add", description: "Adds.", parameters: parameters) { arguments in
        guard case .int(let a) = arguments["a"], case .int(let b) = arguments["b"] else {
            throw MissingNumber()
        }
        return "\(a + b)"
    }
}

struct MissingNumber: LocalizedError {
    var errorDescription: String? { "a and b must be numbers" }
}
