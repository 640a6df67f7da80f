import H2OSessions
import H2OTestModels
import MLXLMCommon
import XCTest

/// Tests that thoughts, tool calls and text of a reply are the same, in whichever pieces the reply
/// arrives.
final class ReplyDecoderTests: XCTestCase {
    private static let call =
        #"<tool_call>{"name": "add", "arguments": {"a": "é\#u{301}"}}</tool_call>"#

    func testThoughtsAreSeparatedFromTheAnswer() {
        let cases: [(reply: String, thinks: Bool, thoughts: String, text: String)] = [
            ("<think>\nhm\n</think>\n\nYes.", false, "hm", "Yes."),
            ("hm\n</think>\n\nYes.", true, "hm", "Yes."),
            ("\n <think> a  b </think> Yes. ", false, "a  b", "Yes. "),
            ("<think>\n\n</think>\n\nYes.", false, "", "Yes."),
            ("<think>hm", false, "hm", ""), ("hm  </thi", true, "hm  </thi", ""),
            ("\n\n Yes.\n", false, "", "\n\n Yes.\n"), ("<thi", false, "", "<thi"),
            ("A <think> is no tag. </think>", false, "", "A <think> is no tag. </think>"),
            ("<think>a</think><think>b</think>c", false, "ab", "c"),
            ("<think>e\u{301}</think>\u{301}x", false, "e\u{301}", "\u{301}x"),
            ("<think>👩\u{200D}👧 \u{200D}</think>🇩🇪", false, "👩\u{200D}👧 \u{200D}", "🇩🇪"),
            ("hm\n\(Self.call)", true, "hm", "[add]"), ("a \(Self.call) b", false, "", "a [add] b"),
        ]
        for (reply, thinks, thoughts, text) in cases {
            for kind in [TextTokenizer.Kind.bytes, .strictByteFallback] {
                let parts = read(reply, TextTokenizer(kind), isThinking: thinks)
                for (own, expected) in [(parts.thoughts, thoughts), (parts.text, text)] {
                    XCTAssertEqual(
                        Array(own.unicodeScalars), Array(expected.unicodeScalars), reply)
                }
            }
        }
    }

    func testMarksAreTextIfTheModelDoesNotThink() {
        for reply in ["<think>", "<think>a</think>b", "</think>"] {
            let parts = read(reply, TextTokenizer(.bytes), marks: nil)
            XCTAssertEqual(parts.text, reply)
            XCTAssertEqual(parts.thoughts, "")
        }
    }

    func testTheResultDoesNotDependOnThePiecesOfRandomReplies() {
        let parts = [
            "<think>", "</think>", "<th", "ink>", " ", "\n", "a", "e", "\u{301}", "\u{200D}", "👩",
            "<tool_call>", "</tool_call>", Self.call, "{", "}", "\"", "\"name\"", "<", ">", "\r\n",
        ]
        var numbers = SeededNumbers(5)
        for _ in 0 ..< 200 {
            let reply = (0 ..< 12).map { _ in parts.randomElement(using: &numbers) ?? "" }.joined()
            let isThinking = Bool.random(using: &numbers)
            var whole = WholeText(pieces: [reply])
            let expected = read(&whole, isThinking: isThinking)
            var scalars = WholeText(pieces: reply.unicodeScalars.map { String($0) })
            XCTAssertEqual(read(&scalars, isThinking: isThinking), expected, reply)
            if !expected.text.contains("["), !reply.contains("<think>"), !isThinking {
                XCTAssertEqual(
                    Array(expected.text.unicodeScalars), Array(reply.unicodeScalars), reply)
            }
        }
    }

    func testFramesOfHarmonyAreThoughtsCallsAndText() {
        let call = #"<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1}"#
        let cases: [(reply: String, thoughts: String, text: String)] = [
            (
                "<|channel|>analysis<|message|>hm <think><|end|><|start|>assistant"
                    + "<|channel|>final<|message|>It is {2}.<|return|>", "hm <think>", "It is {2}."
            ),
            ("\(call)<|call|>", "", "[add]"), (call, "", #"[! {"a": 1}]"#),
            ("\(call)}<|call|>", "", #"[! {"a": 1}}]"#),
            ("<|channel|>commentary to=sub<|message|>{}<|call|>", "", "[! {}]"),
            (" to=functions.add<|channel|>commentary<|message|>x", "", " to=functions.addx"),
            ("<|channel|>commentary<|message|>First.<|end|>", "", "First."),
            ("No frame.<|end|>", "", "No frame."), ("<|channel|>final", "", ""),
            ("<|channel|>private<|message|>x<|end|>y", "", "y"),
        ]
        for (reply, thoughts, text) in cases {
            let tokenizer = TestTokenizer(.gptOSS)
            var decoder = ReplyDecoder(
                .gptOSS, marks: nil, isThinking: false, tools: [add], tokenizer: tokenizer,
                text: ReplyText(tokenizer: tokenizer, skipsSpecialTokens: false))
            XCTAssertEqual(
                read(tokenizer.tokens(of: reply), &decoder), Parts(thoughts: thoughts, text: text))
        }
    }

    func testTheTimeGrowsLinearlyWithALongCall() {
        let text = String(repeating: "{\"a\": [1, 2]}, ", count: 2000)
        let reply = "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": [\(text)1]}}</tool_call>"
        var pieces = WholeText(pieces: reply.map { String($0) })
        XCTAssertEqual(read(&pieces, isThinking: false).text, "[add]")
    }

    private struct Parts: Equatable {
        var thoughts = ""
        var text = ""
    }

    private func read(
        _ reply: String, _ tokenizer: TextTokenizer, isThinking: Bool = false,
        marks: ThoughtMarks? = ThoughtMarks(begin: "<think>", end: "</think>")
    ) -> Parts {
        let text = ReplyText(tokenizer: tokenizer, skipsSpecialTokens: false)
        var decoder = ReplyDecoder(
            .json, marks: marks, isThinking: isThinking, tools: [add], tokenizer: tokenizer,
            text: text)
        return read(tokenizer.encode(text: reply, addSpecialTokens: false), &decoder)
    }

    private func read(_ text: inout WholeText, isThinking: Bool) -> Parts {
        let count = text.pieces.count
        var decoder = ReplyDecoder(
            .json, marks: ThoughtMarks(begin: "<think>", end: "</think>"), isThinking: isThinking,
            tools: [add], tokenizer: TextTokenizer(.bytes), text: text)
        return read(Array(0 ..< count), &decoder)
    }

    private func read(_ tokens: [Int], _ decoder: inout ReplyDecoder) -> Parts {
        var parts = Parts()
        for piece in tokens.flatMap({ decoder.append($0) }) + decoder.finish() {
            switch piece {
            case .text(let text): parts.text += text
            case .thought(let text): parts.thoughts += text
            case .toolCall(let call): parts.text += "[\(call.function.name)]"
            case .malformedToolCall(let text): parts.text += "[! \(text)]"
            }
        }
        return parts
    }

    private var add: [String: any Sendable] {
        ["type": "function", "function": ["name": "add"] as [String: any Sendable]]
    }
}

/// A text that arrives in given pieces; token n is piece n.
private struct WholeText: TokenText {
    let pieces: [String]

    mutating func append(_ token: Int) -> String { pieces[token] }

    mutating func finish() -> String { "" }
}
