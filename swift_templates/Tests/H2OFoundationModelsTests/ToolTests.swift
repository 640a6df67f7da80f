#if canImport(FoundationModels, _version: 2) && (os(Linux) || H2O_TEST_FOUNDATION_MODELS)
    import Foundation
    import FoundationModels
    import H2OFoundationModels
    import H2OSessions
    import XCTest

    @available(iOS 27, macOS 27, visionOS 27, *)
    final class ToolTests: XCTestCase {
        func testTheFrameworkRunsToolsUntilTheModelAnswers() async throws {
            let fixture = try Fixture(.qwen3, saying: call(1, 2), call(3, 3), "It is 6.")
            let session = fixture.session(tools: [Adder()])
            let response = try await session.respond(to: "What is 1 + 2 + 3?")
            XCTAssertEqual(response.content, "It is 6.")
            XCTAssertEqual(
                session.transcript.map(\.kind),
                [
                    "instructions", "prompt", "call add", "output 3", "call add", "output 6",
                    "response",
                ])
        }

        func testARoundReadsOnlyTheAnswerOfTheTool() async throws {
            let fixture = try Fixture(.qwen3, saying: call(1, 2), "It is 3.", "Welcome.")
            let session = fixture.session(tools: [Adder()])
            try await session.respond(to: "What is 1 + 2?")
            try await session.respond(to: "Thanks")
            let read = fixture.model.readText
            for text in ["What is 1 + 2?", "<tool_response>\n3\n", "It is 3.", "Thanks"] {
                XCTAssertEqual(read.components(separatedBy: text).count - 1, 1, text)
            }
        }

        func testSeveralCallsOfOneAnswerAreOneEntry() async throws {
            let fixture = try Fixture(
                .qwen3, saying: "Both:\n\(call(1, 2))\n\(call(3, 4))", "3 and 7.")
            let session = fixture.session(tools: [Adder()])
            let response = try await session.respond(to: "Add")
            XCTAssertEqual(response.content, "3 and 7.")
            XCTAssertEqual(
                session.transcript.map(\.kind),
                [
                    "instructions", "prompt", "response", "call add, add", "output 3",
                    "output 7", "response",
                ])
        }

        func testToolsAreToldUnlessTheyAreDisallowed() async throws {
            for (mode, isTold) in [(nil, true), (.allowed, true), (.disallowed, false)]
                as [(GenerationOptions.ToolCallingMode?, Bool)]
            {
                let fixture = try Fixture(.qwen3, saying: "I cannot.")
                let session = fixture.session(tools: [Adder()])
                let options = GenerationOptions(toolCallingMode: mode)
                try await session.respond(to: "Add", options: options)
                XCTAssertEqual(fixture.model.readText.contains("Adds two numbers"), isTold)
            }
        }

        func testACallThatCannotBeReadIsAnError() async throws {
            let fixture = try Fixture(.qwen3, saying: "<tool_call>\n{add 1}\n</tool_call>")
            let session = fixture.session(tools: [Adder()])
            let error = await failure(of: try await session.respond(to: "Add"))
            guard case .malformedToolCall(let text)? = error as? H2OSessionError else {
                return XCTFail("\(String(describing: error))")
            }
            XCTAssertTrue(text.contains("{add 1}"), text)
        }

        private func call(_ a: Int, _ b: Int) -> String {
            "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \(a), \"b\": \(b)}}\n"
                + "</tool_call>"
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    struct Adder: Tool {
        let name = "add"
        let description = "Adds two numbers."

        var parameters: GenerationSchema {
            let number = #"{"type": "integer"}"#
            let text = #"{"type": "object", "properties": {"a": \#(number), "b": \#(number)}}"#
            return try! JSONDecoder().decode(GenerationSchema.self, from: Data(text.utf8))
        }

        func call(arguments: GeneratedContent) async throws -> String {
            let a: Int = try arguments.value(forProperty: "a")
            return "\(a + (try arguments.value(Int.self, forProperty: "b")))"
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension Transcript.Entry {
        /// The kind of the entry, with the tools that it calls or the output of a tool.
        var kind: String {
            switch self {
            case .instructions: return "instructions"
            case .prompt: return "prompt"
            case .response: return "response"
            case .reasoning: return "reasoning"
            case .toolCalls(let calls):
                return "call " + calls.map(\.toolName).joined(separator: ", ")
            case .toolOutput(let output):
                guard case .text(let text) = output.segments.first else { return "output" }
                return "output " + text.content
            @unknown default: return "other"
            }
        }
    }
#endif
