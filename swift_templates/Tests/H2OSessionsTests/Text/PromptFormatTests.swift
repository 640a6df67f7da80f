import H2OSessions
import H2OTestModels
import MLXLMCommon
import XCTest

/// Tests that the tokens which a session reads and generates, turn by turn, are one rendering of the
/// whole conversation. The templates are like those of several families.
final class PromptFormatTests: XCTestCase {
    private static let families: [ChatTemplate] = [
        .qwen3, .llama3, .gemma, .chatML, .mistral, .gptOSS, .solar, .falcon,
    ]

    func testTurnsOneByOneAreOneRenderingOfTheConversation() throws {
        for template in Self.families {
            for instructions in [nil, "Be brief."] where instructions == nil || template.hasSystem {
                let messages =
                    (instructions.map { [H2OMessage.system($0)] } ?? [])
                    + [
                        .user("Hi <think>"), .assistant("Hello."), .user("What is it?"),
                        .assistant("A cache\nof 2."), .user("Thanks"),
                    ]
                let (read, whole) = try self.read(messages, template, end: template.turnEnd)
                XCTAssertEqual(read, whole, "\(template)")
            }
        }
    }

    func testAReplyThatWasCutOffGetsTheWholeEndOfItsTurn() throws {
        for template in Self.families {
            let messages: [H2OMessage] = [.user("Hi"), .assistant("Hel"), .user("Go on")]
            let (read, whole) = try self.read(messages, template, end: nil)
            XCTAssertEqual(read, whole, "\(template)")
        }
    }

    func testAReplyThatEndsWithAnotherTokenThanTheTemplatesGetsTheWholeEndOfItsTurn() throws {
        for (template, end) in [
            (ChatTemplate.gptOSS, "<|return|>"), (.chatML, "<|endoftext|>"),
            (.solar, "<|endoftext|>"), (.falcon, "<|endoftext|>"),
        ] {
            let messages: [H2OMessage] = [
                .user("Hi"), .assistant("Hello."), .user("Thanks"), .assistant("Bye."), .user("x"),
            ]
            let (read, whole) = try self.read(messages, template, end: end)
            XCTAssertEqual(read.components(separatedBy: end).count, 3, "\(template)")
            XCTAssertEqual(read.replacing(end, with: ""), whole, "\(template)")
        }
    }

    func testCallsAndResultsOfToolsAreOneRenderingOfTheConversation() throws {
        let call = H2OToolCall(id: "1", name: "add", arguments: ["a": .int(1)])
        let result = H2OMessage.tool("3", callID: "1", name: "add")
        let text = #"<tool_call>\n{"name": "add", "arguments": {"a":1}}\n</tool_call>"#
            .replacing(#"\n"#, with: "\n")
        let messages: [H2OMessage] = [
            .user("Add"), .assistant("", toolCalls: [call]), result, .assistant("3."),
            .user("Thanks"), .assistant("Bye."), .user("x"),
        ]
        let (read, whole) = try self.read(
            messages, .qwen3, end: "<|im_end|>", written: [text, "3.", "Bye."])
        XCTAssertEqual(read, whole)
    }

    func testOnlyTheTemplateOpensAThought() throws {
        let cases: [(ChatTemplate, [String: JSONValue], opens: Bool)] = [
            (.qwen3, [:], false), (.qwen3Thinking, [:], true),
            (.qwen3, ["enable_thinking": .bool(false)], false), (.llama3, [:], false),
        ]
        for (template, thinking, opens) in cases {
            let format = PromptFormat(
                tokenizer: TestTokenizer(template), stops: [],
                marks: ThoughtMarks(begin: "<think>", end: "</think>"), thinking: thinking)
            for text in ["Hi", "What does <think> mean?", "<think>", "</think>"] {
                for messages in [
                    [.user(text)], [.system(text), .user("x")],
                    [.user("x"), .assistant(text), .user(text)],
                ] as [[H2OMessage]] {
                    XCTAssertEqual(
                        try format.opensThought(after: messages), opens, "\(template): \(text)")
                }
            }
        }
    }

    func testWithoutMarksNoThoughtIsOpen() throws {
        let format = PromptFormat(tokenizer: TestTokenizer(.qwen3Thinking), stops: [])
        XCTAssertFalse(try format.opensThought(after: [.user("x")]))
    }

    func testATokenizerThatAlwaysBeginsAReplyGivesTheSameTokens() throws {
        for template in Self.families {
            let messages: [H2OMessage] = [.user("Hi"), .assistant("Hello."), .user("Thanks")]
            let (read, whole) = try self.read(
                messages, template, end: template.turnEnd,
                tokenizer: ForwardingTokenizer(TestTokenizer(template)))
            XCTAssertEqual(read, whole, "\(template)")
        }
    }

    /// Reads a conversation turn by turn.
    ///
    /// - Parameters:
    ///   - end: the token that ends each reply; nil if the replies are cut off
    ///   - written: the replies as the model writes them
    /// - Returns: the text of all tokens that were read and generated, and of one rendering
    private func read(
        _ messages: [H2OMessage], _ template: ChatTemplate, end: String?, written: [String]? = nil,
        tokenizer: (any Tokenizer)? = nil
    ) throws -> (read: String, whole: String) {
        let own = TestTokenizer(template)
        let stops = [template.stop, template.turnEnd].compactMap { $0 }
            .compactMap(own.convertTokenToId)
        let format = PromptFormat(tokenizer: tokenizer ?? own, stops: Set(stops))
        let replies = messages.indices.filter { messages[$0].role == .assistant }
        let first = replies.first ?? messages.count
        var tokens = try format.opening(Array(messages[..<first])).tokens
        let texts = written ?? replies.map { template.writes(messages[$0].text) }
        for (reply, text) in zip(replies, texts) {
            let stop = end.flatMap(own.convertTokenToId)
            tokens += own.tokens(of: text) + (stop.map { [$0] } ?? [])
            let next = replies.first { $0 > reply } ?? messages.count
            tokens += try format.following(reply + 1, of: Array(messages[..<next]), stop: stop)
                .tokens
        }
        let whole = try format.opening(messages).tokens
        let decode = { own.decode(tokenIds: $0, skipSpecialTokens: false) }
        return (decode(tokens), decode(whole))
    }
}

extension ChatTemplate {
    /// The token with which the template itself ends a reply; nil if it ends it with text.
    fileprivate var turnEnd: String? {
        switch self {
        case .chatML: "<|im_end|>"
        case .gptOSS: "<|end|>"
        case .solar, .falcon: nil
        default: stop
        }
    }

    fileprivate var hasSystem: Bool { self != .mistral }

    /// A reply as the model writes it.
    fileprivate func writes(_ text: String) -> String {
        switch self {
        case .gptOSS: "<|channel|>final<|message|>" + text
        case .mistral, .falcon: " " + text
        default: text
        }
    }
}
