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

    private func session(saying replies: String...) throws -> (EchoModel, H2OSession) {
        let fixture = try SessionFixture(.qwen3, thinks: false)
        fixture.model.replies = replies
        let tools = [try adder(of: digit)]
        return (fixture.model, fixture.makeModel().makeSession(tools: tools, options: options))
    }

    func testTheModelCallsAToolBeforeItAnswersInEachTurn() async throws {
        let written = #"{"name": "add", "arguments": {"a": 1, "b": 2}}"#
        let (_, session) = try session(saying: written, "It is 3.", written, "Again 3.")

        let parts = try await session.parts(to: "What is 1 + 2?")

        guard case .toolCall(let call) = parts.first else { return XCTFail("\(parts)") }
        XCTAssertEqual(call.name, "add")
        XCTAssertEqual(call.arguments, ["a": .int(1), "b": .int(2)])
        XCTAssertEqual(parts.compactMap(\.text).joined(), "It is 3.")
        XCTAssertEqual(parts.last?.usage?.stop, .endOfTurn)
        _ = try await session.respond(to: "Add")
        assertEqual(Set(await session.transcript.flatMap(\.toolCalls).map(\.id)).count, 2)
    }

    func testAModelThatWouldRatherTalkCallsToo() async throws {
        let (_, session) = try session(saying: "I would rather not.", "Well.")

        let reply = try await session.respond(to: "Add")

        let calls = await session.transcript.flatMap(\.toolCalls)
        XCTAssertEqual(calls.map(\.name), ["add"])
        XCTAssertEqual(calls.first.map { Set($0.arguments.keys) }, ["a", "b"])
        XCTAssertEqual(reply.content, "Well.")
    }

    func testACallThatIsCutOffIsReported() async throws {
        let (model, session) = try session(saying: #"{"name": "add", "arg"#)
        model.onCall = {
            guard model.readText.hasSuffix("arg") else { return }
            withUnsafeCurrentTask { $0?.cancel() }
        }

        let parts = try await session.parts(to: "Add")

        XCTAssertEqual(parts.count, 2)
        guard case .malformedToolCall = parts.first else { return XCTFail("\(parts)") }
        XCTAssertEqual(parts.last?.usage?.stop, .cancelled)
        assertEqual(await session.transcript, [])
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
        let schema = try RequiredCall.schema(of: tools)
        for (text, isOne) in [
            (#"{"name": "one", "arguments": {"next": 1, "self": null}}"#, true),
            (#"{"name": "one", "arguments": {"next": 1, "self": {"next": 2}}}"#, true),
            (#"{"name": "two", "arguments": {"next": true}}"#, true),
            (#"{"name": "two", "arguments": {"next": 1}}"#, false),
            (#"{"name": "three", "arguments": {}}"#, false),
        ] {
            XCTAssertEqual((try? schema.check(text)) != nil, isOne, text)
        }
    }
}
