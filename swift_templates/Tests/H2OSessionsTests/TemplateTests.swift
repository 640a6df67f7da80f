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
            let fixture = try TemplateFixture(template)
            fixture.scripted.replies = ["Hello.", "A heavy hitter.", "You are welcome."]
            let session = fixture.model.makeSession(instructions: "Be brief.")
            for prompt in ["Hi", "What is kept?", "Thanks"] {
                _ = try await session.respond(to: prompt)
            }

            let messages = await session.messages
            XCTAssertEqual(fixture.readText, try fixture.rendered(messages), "\(template)")
        }
    }

    func testInstructionsAndToolsAreTheOpeningThatStays() async throws {
        let fixture = try TemplateFixture(.qwen3, maxSize: 512)
        let long = String(repeating: "word ", count: 40)
        fixture.scripted.replies = [String](repeating: long, count: 12)
        let session = fixture.model.makeSession(
            instructions: "Be brief.", tools: [try adder()],
            options: H2OSession.Options(maxTokens: 40))
        for _ in 0 ..< 12 {
            _ = try await session.respond(to: "Tell me about the caches of this model, please.")
        }

        let opening = try XCTUnwrap(fixture.readText.components(separatedBy: "<|im_end|>").first)
        let tokens = TestTokenizer(.qwen3).tokens(of: opening)
        let keptPositions = await session.keptPositions
        XCTAssertTrue(opening.contains("Adds."))
        XCTAssertGreaterThan(keptPositions.shares.count, 2 * 512)
        XCTAssertTrue(keptPositions.shares.prefix(tokens.count).allSatisfy { $0 == 1 })
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

/// A model that replies with given texts, and a family's chat template.
struct TemplateFixture {
    let template: ChatTemplate
    let scripted: EchoModel
    let model: H2OModel

    /// - Parameter calls: the format of the model's tool calls; nil for upstream's default format
    init(
        _ template: ChatTemplate, calls: ToolCallFormat? = nil, thinks: Bool = true,
        maxSize: Int = 2048, snapshots: H2OSnapshotLimits = H2OSnapshotLimits()
    ) throws {
        self.template = template
        scripted = EchoModel(template, thinks: thinks)
        var context = scripted.context()
        context.configuration.toolCallFormat = calls
        model = H2OModel(
            LoadedModel(
                context: context,
                caches: H2OCaches(configuration: try H2OConfiguration(maxSize: maxSize)),
                snapshots: snapshots,
                platform: H2OPlatform(
                    memory: MemoryGuard { 1 << 30 }, background: BackgroundGuard(),
                    elapsed: { .zero }))
        ).withGrammars(template)
    }

    /// All tokens that the model has read, as text.
    var readText: String { scripted.readText }

    /// The number of tokens of a conversation without its last message, and of the beginning of the
    /// reply.
    func tokens(before reply: String = "<|im_start|>assistant", in session: H2OSession) async throws
        -> Int
    {
        let text = try rendered(await session.messages.dropLast()) + "\n" + reply
        return TestTokenizer(template).tokens(of: text).count
    }

    /// The messages as the template renders them, up to the end of the last message.
    func rendered(_ messages: [H2OMessage], tools: [H2OTool] = []) throws -> String {
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
