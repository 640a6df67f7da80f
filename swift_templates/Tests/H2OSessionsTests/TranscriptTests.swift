import H2OKit
import H2OSessions
import H2OTestModels
import XCTest

/// Tests the errors for transcripts that no conversation can have.
final class TranscriptTests: XCTestCase {
    private let call = H2OToolCall(id: "1", name: "add")

    private func refusal(_ messages: [H2OMessage]) async throws -> H2OSessionError? {
        let conversation = Conversation(model: try SessionFixture(.qwen3).makeModel())
        do {
            _ = try await conversation.respond(to: messages)
            return nil
        } catch {
            return error as? H2OSessionError
        }
    }

    func testAContradictionIsNamed() async throws {
        let calling = H2OMessage.assistant("", toolCalls: [call])
        let cases: [([H2OMessage], String)] = [
            ([.user("a"), .assistant("b")], "its last message has the role assistant,"),
            ([.system("a")], "its last message has the role system,"),
            ([.user("a"), .system("b"), .user("c")], "message 1 has the role system,"),
            (
                [.user("a"), .tool("3", callID: "1", name: "add")],
                "message 1 answers the tool call \"1\", which has an answer already"
            ),
            (
                [.user("a"), calling, .user("b")],
                "the tool call \"1\" has no answer before message 2."
            ),
            (
                [.user("a"), calling, .tool("3", callID: "1", name: "add"), calling, .user("b")],
                "message 3 has a tool call with the identifier \"1\","
            ),
        ]
        for (messages, reason) in cases {
            let error = try await refusal(messages)
            guard case .contradictoryTranscript(let message)? = error else {
                return XCTFail("\(reason): \(String(describing: error))")
            }
            XCTAssertTrue(message.hasPrefix(reason), message)
            XCTAssertTrue(error?.localizedDescription.hasSuffix(".") ?? false)
        }
    }

    func testNothingToAnswerIsAnEmptyPrompt() async throws {
        for messages in [[], [H2OMessage.user("")]] {
            assertEqual(try await refusal(messages), .emptyPrompt)
        }
    }
}

final class TranscriptChainTests: XCTestCase {
    func testTheOrderOfArgumentsIsNotADifference() throws {
        func head(_ arguments: String) throws -> TranscriptChain.Head {
            let text = #"{"id": "1", "name": "f", "arguments": \#(arguments)}"#
            let call = try JSONDecoder().decode(H2OToolCall.self, from: Data(text.utf8))
            return TranscriptChain(
                opening: "", messages: [H2OMessage.assistant("", toolCalls: [call])]
            ).head
        }

        XCTAssertEqual(
            try head(#"{"a": 1, "b": {"c": 2.0, "d": 3}}"#),
            try head(#"{"b": {"d": 3, "c": 2}, "a": 1}"#))
    }
}
