import H2OKit
import H2OSessions
import H2OTestModels
import MLXLMCommon
import XCTest

/// Tests tool calls in each format for which upstream has a parser.
final class ToolFormatTests: XCTestCase {
    func testTheCallsOfATurnAreReadAndNoneOfThemIsText() async throws {
        try await forEachFormat { format, calls in
            for (text, cities) in [(calls.one, ["Oslo"]), (calls.two, ["Oslo", "Rome"])] {
                guard let text else { continue }
                let parts = try await self.parts(of: text, format)

                XCTAssertEqual(parts.cities, cities, "\(format): \(parts)")
                XCTAssertEqual(parts.malformed, [], "\(format)")
                XCTAssertEqual(parts.shown, "It rains.", "\(format)")
            }
        }
    }

    func testWhatIsNoCallIsReportedAndNoneOfItIsText() async throws {
        try await forEachFormat { format, calls in
            for wrong in [calls.unreadable, calls.cutOff, calls.undeclared] {
                let parts = try await self.parts(of: wrong, format)

                XCTAssertEqual(parts.cities, [], "\(format): \(parts)")
                XCTAssertEqual(parts.malformed.count, 1, "\(format): \(parts)")
                XCTAssertEqual(parts.shown, "", "\(format): \(wrong)")
            }
        }
    }

    func testACallIsReadBesideOneThatCannotBe() async throws {
        try await forEachFormat { format, calls in
            guard calls.two != nil else { return }
            let text = calls.one + WrittenCalls.separator(format) + calls.unreadable
            let parts = try await self.parts(of: text, format)

            XCTAssertEqual(parts.cities, ["Oslo"], "\(format): \(parts)")
            XCTAssertEqual(parts.malformed.count, 1, "\(format): \(parts)")
        }
    }

    func testLlamasOtherWaysToCallAreRead() async throws {
        let object = #"{"name": "weather", "parameters": {"city": "Oslo"}}"#
        for text in [
            "<|python_tag|>" + object, "<|python_tag|>weather(city=\"Oslo\")",
            "<|python_tag|>[weather(city=\"Oslo\")]", "[weather(city=\"Oslo\")]",
        ] {
            let parts = try await parts(of: text, .llama3)
            XCTAssertEqual(parts.cities, ["Oslo"], "\(text): \(parts)")
            XCTAssertEqual(parts.shown, "It rains.", text)
        }
        for wrong in [
            "<|python_tag|>print('Oslo')", "<|python_tag|>{\"city\": 1}",
            "<|python_tag|>weather(city=\"Os", "[weather(city=\"Os",
        ] {
            let parts = try await parts(of: wrong, .llama3)
            XCTAssertEqual(parts.malformed, [wrong], "\(parts)")
            XCTAssertEqual(parts.shown, "", wrong)
        }
    }

    func testJSONThatIsNoCallIsText() async throws {
        let texts = [
            #"{"city": "Oslo"}"#, "{ x }", #"Of {"name": "Ann"} and"#, "a < b {", "[1, 2]",
            #"{"name": "Ann", "arg"#,
        ]
        for format in [ToolCallFormat.json, .llama3] {
            for text in texts {
                let parts = try await parts(of: text, format)
                XCTAssertEqual(parts.shown, text, "\(format)")
                XCTAssertEqual(parts.malformed, [], "\(format): \(text)")
            }
        }
    }

    func testAListMayHaveBracketsAndCommasInItsTexts() async throws {
        let call = #"<|tool_call_start|>[weather(city="Os)lo, [x]", days=3)]<|tool_call_end|>"#
        let parts = try await parts(of: call, .lfm2)
        XCTAssertEqual(parts.cities, ["Os)lo, [x]"], "\(parts)")
    }

    func testIdentifiersOfMistralAreAsItsTemplateAsks() async throws {
        let calls = try XCTUnwrap(WrittenCalls.of(.mistral))
        let parts = try await parts(of: calls.one, .mistral)
        let ids = parts.compactMap { part in
            if case .toolCall(let call) = part { call.id } else { nil }
        }
        XCTAssertEqual(ids.map(\.count), [9])
    }

    private func forEachFormat(
        _ check: (ToolCallFormat, WrittenCalls) async throws -> Void
    ) async throws {
        for format in ToolCallFormat.allCases {
            try await check(format, XCTUnwrap(WrittenCalls.of(format), format.rawValue))
        }
    }

    /// The parts of a reply in which the model writes `text` and, if that was a tool call, then "It
    /// rains."
    private func parts(
        of text: String, _ format: ToolCallFormat
    ) async throws -> [H2OSession.Part] {
        let answer = WrittenCalls.answer("It rains.", format)
        var fixture = try SessionFixture(.qwen3, saying: text, answer)
        fixture.calls = format
        return try await fixture.makeModel().makeSession(tools: [weather()]).parts(to: "Weather?")
    }

    private func weather() throws -> H2OTool {
        let properties = #"{"city": {"type": "string"}, "days": {"type": "integer"}}"#
        return try H2OTool(
            name: "weather", description: "Tells it.",
            parameters: JSONValue(#"{"type": "object", "properties": \#(properties)}"#)
        ) { _ in "rain" }
    }
}

extension [H2OSession.Part] {
    fileprivate var cities: [String] {
        compactMap { part in
            guard case .toolCall(let call) = part, call.name == "weather",
                case .string(let city) = call.arguments["city"]
            else { return nil }
            return city
        }
    }

    fileprivate var malformed: [String] {
        compactMap { part in
            if case .malformedToolCall(let text) = part { text } else { nil }
        }
    }

    /// The text of all parts, without newlines at both ends.
    fileprivate var shown: String {
        compactMap(\.text).joined().trimmingCharacters(in: .newlines)
    }
}
