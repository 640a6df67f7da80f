import H2OKit
import H2OTestModels
import MLXLMCommon
import XCTest

@testable import H2OSessions

/// Tests replies that must call a tool.
final class RequiredCallTests: XCTestCase {
    private let digit = #"{"type": "integer", "minimum": 0, "maximum": 9}"#
    private let options = H2OSession.Options(
        sampling: .greedy, maxTokens: nil, thinking: false, requiresToolCall: true)

    private func session(_ fixture: SessionFixture) throws -> H2OSession {
        fixture.makeModel().makeSession(tools: [try adder(of: digit)], options: options)
    }

    func testTheModelCallsAToolBeforeItAnswers() async throws {
        let fixture = try SessionFixture(.qwen3, thinks: false)
        fixture.model.replies = [
            #"{"name": "add", "arguments": {"a": 1, "b": 2}}"#, "It is 3.",
        ]
        let session = try session(fixture)

        let parts = try await session.parts(to: "What is 1 + 2?")

        guard case .toolCall(let call) = parts.first else { return XCTFail("\(parts)") }
        XCTAssertEqual(call.name, "add")
        XCTAssertEqual(call.arguments, ["a": .int(1), "b": .int(2)])
        XCTAssertEqual(parts.compactMap(\.text).joined(), "It is 3.")
        XCTAssertEqual(parts.last?.usage?.stop, .endOfTurn)
    }

    func testAModelThatWouldRatherTalkCallsToo() async throws {
        let fixture = try SessionFixture(.qwen3, thinks: false)
        fixture.model.replies = ["I would rather not.", "Well."]
        let session = try session(fixture)

        let reply = try await session.respond(to: "Add")

        let calls = await session.messages.flatMap(\.toolCalls)
        XCTAssertEqual(calls.map(\.name), ["add"])
        XCTAssertEqual(calls.first.map { Set($0.arguments.keys) }, ["a", "b"])
        XCTAssertEqual(reply.text, "Well.")
    }

    func testEachTurnCalls() async throws {
        let fixture = try SessionFixture(.qwen3, thinks: false)
        let call = #"{"name": "add", "arguments": {"a": 1, "b": 2}}"#
        fixture.model.replies = [call, "3.", call, "Again 3."]
        let session = try session(fixture)
        for _ in 0 ..< 2 { _ = try await session.respond(to: "Add") }

        let calls = await session.messages.flatMap(\.toolCalls)
        XCTAssertEqual(Set(calls.map(\.id)).count, 2)
    }

    func testACallThatIsCutOffIsReported() async throws {
        let fixture = try SessionFixture(.qwen3, thinks: false)
        let written = #"{"name": "add", "arg"#
        fixture.model.replies = [written]
        fixture.model.onCall = { [model = fixture.model] in
            guard model.readText.hasSuffix("arg") else { return }
            withUnsafeCurrentTask { $0?.cancel() }
        }
        let session = try session(fixture)

        let reply = try await session.respond(to: "Add")

        XCTAssertEqual(reply.usage.stop, .cancelled)
        XCTAssertEqual(reply.toolCalls, [])
        XCTAssertEqual(reply.malformedToolCalls.count, 1)
        XCTAssertEqual(reply.text, "")
    }

    func testWithoutToolsItIsAnError() async throws {
        let fixture = try SessionFixture(.qwen3, thinks: false)
        let session = fixture.makeModel().makeSession(options: options)
        await assertThrows(try await session.respond(to: "Add"), H2OSessionError.noToolToCall)
    }

    func testDefinitionsOfSeveralToolsStayApart() throws {
        let tools = try [("one", "integer"), ("two", "boolean")].map { name, kind in
            let parameters = try JSONValue(
                """
                {"type": "object", "$defs": {"kind": {"type": "\(kind)"}}, "properties": {
                  "next": {"$ref": "#/$defs/kind"},
                  "self": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}
                """)
            return try H2OToolDefinition(name: name, description: "", parameters: parameters)
        }
        let grammar = ReferenceGrammar(try RequiredCall.schema(of: tools).grammar)
        for (text, isOne) in [
            (#"{"name": "one", "arguments": {"next": 1, "self": null}}"#, true),
            (#"{"name": "one", "arguments": {"next": 1, "self": {"next": 2}}}"#, true),
            (#"{"name": "two", "arguments": {"next": true}}"#, true),
            (#"{"name": "two", "arguments": {"next": 1}}"#, false),
            (#"{"name": "three", "arguments": {}}"#, false),
            (#"{"arguments": {}, "name": "one"}"#, false),
        ] {
            XCTAssertEqual(grammar.matches(text), isOne, text)
        }
    }
}
