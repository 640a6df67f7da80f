import H2OKit
import H2OSessions
import H2OTestModels
import XCTest

/// Transcripts that no conversation can have: errors that say what next.
final class TranscriptTests: XCTestCase {
    private typealias Contradiction = H2OSessionError.Contradiction
    private let call = H2OToolCall(id: "1", name: "add")

    private func refusal(_ messages: [H2OMessage]) async throws -> H2OSessionError? {
        let conversation = Conversation(model: try TemplateFixture(.qwen3).model)
        do {
            _ = try await conversation.respond(to: messages)
            return nil
        } catch {
            return error as? H2OSessionError
        }
    }

    func testAContradictionIsNamed() async throws {
        let calling = H2OMessage.assistant("", toolCalls: [call])
        let cases: [([H2OMessage], Contradiction)] = [
            ([.user("a"), .assistant("b")], .endsWith(.assistant)),
            ([.system("a")], .endsWith(.system)),
            ([.user("a"), .system("b"), .user("c")], .systemMessage(at: 1)),
            (
                [.user("a"), .tool("3", callID: "1", name: "add")],
                .unaskedAnswer(id: "1", at: 1)
            ),
            ([.user("a"), calling, .user("b")], .unansweredCall(id: "1", at: 2)),
            (
                [.user("a"), calling, .tool("3", callID: "1", name: "add"), calling, .user("b")],
                .repeatedCall(id: "1", at: 3)
            ),
        ]
        for (messages, contradiction) in cases {
            let error = try await refusal(messages)
            XCTAssertEqual(error, .contradictoryTranscript(contradiction))
            XCTAssertTrue(error?.localizedDescription.hasSuffix(".") ?? false)
        }
    }

    func testNothingToAnswerIsAnEmptyPrompt() async throws {
        for messages in [[], [H2OMessage.user("")]] {
            let error = try await refusal(messages)
            XCTAssertEqual(error, .emptyPrompt)
        }
    }
}
