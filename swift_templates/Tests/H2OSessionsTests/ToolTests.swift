import H2OKit
import H2OSessions
import H2OTestModels
import MLXLMCommon
import XCTest

/// Tests the tools of a session, in the format of Hermes and Qwen.
final class ToolTests: XCTestCase {
    private func call(_ a: Int, _ b: Int) -> String {
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\":\(a),\"b\":\(b)}}\n</tool_call>"
    }

    private func session(
        _ fixture: SessionFixture, says replies: [String],
        _ options: H2OSession.Options = H2OSession.Options()
    ) throws -> H2OSession {
        fixture.model.replies = replies
        return fixture.makeModel().makeSession(tools: [try adder()], options: options)
    }

    func testACallIsAnsweredAndTheModelGoesOn() async throws {
        let fixture = try SessionFixture(.qwen3)
        let session = try session(fixture, says: [call(1, 2), "It is 3."])

        let parts = try await session.parts(to: "What is 1 + 2?")

        guard case .toolCall(let toolCall) = parts.first else { return XCTFail("\(parts)") }
        XCTAssertEqual(toolCall.name, "add")
        XCTAssertEqual(toolCall.arguments, ["a": .int(1), "b": .int(2)])
        let answer = H2OMessage.tool("3", callID: toolCall.id, name: "add")
        XCTAssertEqual(parts.dropFirst().first, .toolResult(answer))
        XCTAssertEqual(parts.compactMap(\.text).joined(), "It is 3.")
        let messages = await session.transcript
        XCTAssertEqual(
            messages,
            [
                .user("What is 1 + 2?"), .assistant("", toolCalls: [toolCall]), answer,
                .assistant("It is 3."),
            ])
        XCTAssertEqual(fixture.model.readText, try fixture.rendered(messages, tools: [try adder()]))
    }

    func testSeveralCallsOfOneAnswerAreAnsweredInTheirOrder() async throws {
        let fixture = try SessionFixture(.qwen3)
        let replies = ["Both:\n\(call(1, 2))\n\(call(3, 4))", "3 and 7."]
        let session = try session(fixture, says: replies)

        let reply = try await session.respond(to: "Add")

        let messages = await session.transcript
        XCTAssertEqual(messages.filter { $0.role == .tool }.map(\.text), ["3", "7"])
        XCTAssertEqual(
            Set(messages[1].toolCalls.map(\.id)).count, 2, "the calls have different identifiers")
        XCTAssertEqual(reply.toolCalls, [])
        XCTAssertEqual(reply.usage.stop, .endOfTurn)
        XCTAssertTrue(reply.content.hasSuffix("3 and 7."), reply.content)
    }

    func testAModelMayCallInSeveralRounds() async throws {
        let fixture = try SessionFixture(.qwen3)
        let session = try session(fixture, says: [call(1, 2), call(3, 3), "6.", "Welcome."])

        let reply = try await session.respond(to: "Add")
        _ = try await session.respond(to: "Thanks")

        XCTAssertEqual(reply.content, "6.")
        let messages = await session.transcript
        XCTAssertEqual(Set(messages.flatMap(\.toolCalls).map(\.id)).count, 2)
        XCTAssertEqual(fixture.model.readText, try fixture.rendered(messages, tools: [try adder()]))
    }

    func testTheErrorOfAToolIsTextForTheModel() async throws {
        let fixture = try SessionFixture(.qwen3)
        let wrong = "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>"
        let session = try session(fixture, says: [wrong, "I need numbers."])

        let reply = try await session.respond(to: "Add")

        assertEqual(await session.transcript[2].text, "Error: a and b must be numbers")
        XCTAssertEqual(reply.content, "I need numbers.")
    }

    func testWhatIsNoCallIsReportedAsTheModelWroteIt() async throws {
        let unreadable = "<tool_call>\n{\"name\": \"add\",\n</tool_call>"
        let undeclared = "<tool_call>\n{\"name\": \"sub\", \"arguments\": {}}\n</tool_call>"
        let cutOff = "<tool_call>\n{\"name\": \"add\""
        for wrong in [unreadable, undeclared, cutOff] {
            let fixture = try SessionFixture(.qwen3)
            let session = try session(fixture, says: ["Now: " + wrong])

            let parts = try await session.parts(to: "Add")

            XCTAssertTrue(parts.contains(.malformedToolCall(wrong)), "\(parts)")
            XCTAssertEqual(parts.compactMap(\.text).joined(), "Now: ")
            XCTAssertEqual(parts.last?.usage?.stop, .endOfTurn)
        }
    }

    func testRoundsThatDoNotEndAreAnErrorAndTheConversationIsAsBefore() async throws {
        let fixture = try SessionFixture(.qwen3)
        let session = try session(
            fixture, says: [call(1, 1), call(1, 1), call(1, 1), "Hello."],
            H2OSession.Options(maxToolRounds: 2))

        await assertThrows(
            try await session.respond(to: "Add"), H2OSessionError.tooManyToolRounds(2))
        assertEqual(await session.transcript, [])
        assertEqual(try await session.respond(to: "Hi").content, "Hello.")
    }

    func testThePromptOfAReplyWithCallsIsWhatWasCachedAndRead() async throws {
        let fixture = try SessionFixture(.qwen3)
        let session = try session(fixture, says: ["Hello.", call(1, 2), call(3, 3), "6."])
        _ = try await session.respond(to: "Hi")

        let usage = try await session.respond(to: "Add").usage

        XCTAssertGreaterThan(usage.cachedTokens, 0)
        XCTAssertEqual(usage.promptTokens, usage.cachedTokens + usage.readTokens)
        assertEqual(await session.tokensSeen, usage.promptTokens + usage.generatedTokens)
    }

    func testToolsThatTheTemplateLeavesOutAreAnError() async throws {
        let fixture = try SessionFixture(.llama3, saying: "Hello.")
        let model = fixture.makeModel()
        XCTAssertFalse(model.canCallTools)
        XCTAssertTrue(try SessionFixture(.qwen3).makeModel().canCallTools)
        for required in [false, true] {
            let session = model.makeSession(
                tools: [try adder()], options: H2OSession.Options(requiresToolCall: required))
            await assertThrows(
                try await session.respond(to: "Add"), H2OSessionError.noTools(model: "the model"))
        }
        XCTAssertEqual(fixture.model.calls, [])
    }

    func testInstructionsThatTheTemplateLeavesOutAreAnError() async throws {
        let model = try SessionFixture(.mistral).makeModel()
        let session = model.makeSession(instructions: "Be brief.")
        await assertThrows(
            try await session.respond(to: "Hi"), H2OSessionError.noSystemPrompt(model: "the model"))
    }

    func testTwoToolsOfOneNameAreRefused() async throws {
        let fixture = try SessionFixture(.qwen3)
        let session = fixture.makeModel().makeSession(tools: [try adder(), try adder()])
        await assertThrows(
            try await session.respond(to: "Add"), H2OSessionError.duplicateTool("add"))
    }

    func testParametersThatAreNoSchemaOfAnObjectAreRefused() {
        for parameters in [JSONValue.null, .string("object"), .object(["type": .string("array")])] {
            XCTAssertThrowsError(
                try H2OToolDefinition(name: "add", description: "", parameters: parameters)
            ) { error in
                guard case .invalidSchema = error as? H2OSessionError else {
                    return XCTFail("\(error)")
                }
            }
        }
    }

    func testArgumentsAreOfTheToolsOwnType() async throws {
        struct Summands: Decodable, Sendable {
            let a: Int
            let b: Int?
        }
        let adder = H2OTool(
            name: "add", description: "Adds.",
            parameters: [
                .required("a", type: .int, description: "One"),
                .optional("b", type: .int, description: "Another"),
            ]
        ) { (numbers: Summands) in "\(numbers.a + (numbers.b ?? 0))" }
        let wrong = call(1, 2).replacing("\"a\":1", with: "\"a\":\"one\"")
        let fixture = try SessionFixture(.qwen3, saying: call(1, 2), wrong, "Three.")
        let session = fixture.makeModel().makeSession(tools: [adder])

        _ = try await session.respond(to: "Add")

        let answers = await session.transcript.filter { $0.role == .tool }.map(\.text)
        XCTAssertEqual(answers[0], "3")
        XCTAssertTrue(
            answers[1].hasPrefix("Error: The arguments do not match the tool's description"))
        XCTAssertTrue(answers[1].contains(", at a."), answers[1])
        let told = adder.definition.parameters
        guard case .object(let schema) = told, case .object(let members)? = schema["properties"]
        else { return XCTFail("\(told)") }
        XCTAssertEqual(schema["required"], .array([.string("a")]))
        XCTAssertEqual(
            members["b"],
            .object(["type": .string("integer"), "description": .string("Another")]))
    }

    func testAToolMayAskAnotherSessionOfTheModel() async throws {
        let fixture = try SessionFixture(.qwen3, saying: call(1, 2), "It is three.", "Three.")
        let model = fixture.makeModel()
        let inner = model.makeSession()
        let tool = H2OTool(name: "add", description: "Adds.", parameters: []) {
            (_: [String: Int]) in
            try await inner.respond(to: "What is 1 + 2?").content
        }
        let session = model.makeSession(tools: [tool])

        assertEqual(try await session.respond(to: "Ask").content, "Three.")
        assertEqual(await session.transcript[2].text, "It is three.")
    }
}
