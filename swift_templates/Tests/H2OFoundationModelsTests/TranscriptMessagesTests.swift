#if canImport(FoundationModels, _version: 2) && (os(Linux) || H2O_TEST_FOUNDATION_MODELS)
    import Foundation
    import FoundationModels
    import H2OSessions
    import XCTest

    @testable import H2OFoundationModels

    @available(iOS 27, macOS 27, visionOS 27, *)
    final class TranscriptMessagesTests: XCTestCase {
        private func messages(_ entries: [Transcript.Entry]) throws -> [H2OMessage] {
            try TranscriptMessages(Transcript(entries: entries)).messages
        }

        func testInstructionsPromptsAndResponsesAreMessagesInTheirOrder() throws {
            XCTAssertEqual(
                try messages([
                    .instructions("be brief"), .prompt("hello"), .response("hi"), .prompt("more"),
                ]),
                [.system("be brief"), .user("hello"), .assistant("hi"), .user("more")])
        }

        func testInstructionsThatOnlyNameToolsAreNoMessage() throws {
            let nothing = Transcript.Instructions(segments: [], toolDefinitions: [])
            XCTAssertEqual(
                try messages([.instructions(nothing), .prompt("hello")]), [.user("hello")])
        }

        func testThoughtsTextAndCallsOfOneRoundAreOneMessage() throws {
            let call = Transcript.ToolCall(
                id: "1", toolName: "weather",
                arguments: try GeneratedContent(json: #"{"city": "Oslo", "days": 2}"#))
            let entries: [Transcript.Entry] = [
                .prompt("rain?"), .reasoning("which city"), .response("I look."),
                .toolCalls(Transcript.ToolCalls([call])), .output("dry", of: call),
                .reasoning("easy"), .response("No."),
            ]
            XCTAssertEqual(
                try messages(entries),
                [
                    .user("rain?"),
                    .assistant(
                        "I look.", thoughts: "which city",
                        toolCalls: [
                            H2OToolCall(
                                id: "1", name: "weather",
                                arguments: ["city": .string("Oslo"), "days": .int(2)])
                        ]),
                    .tool("dry", callID: "1", name: "weather"),
                    .assistant("No.", thoughts: "easy"),
                ])
        }

        func testInstructionsThatChangedStandBeforeTheNextPrompt() throws {
            XCTAssertEqual(
                try messages([
                    .instructions("be brief"), .prompt("hello"), .response("hi"),
                    .instructions("be brief"), .prompt("more"), .response("no"),
                    .instructions("be kind"), .prompt("why"),
                ]),
                [
                    .system("be brief"), .user("hello"), .assistant("hi"), .user("more"),
                    .assistant("no"), .user("be kind\n\nwhy"),
                ])
        }

        func testAHistoryThatWasCutBeginsWithItsFirstQuestion() throws {
            let call = Transcript.ToolCall(
                id: "1", toolName: "weather", arguments: try GeneratedContent(json: "{}"))
            let history: [Transcript.Entry] = [
                .prompt("rain?"), .toolCalls(Transcript.ToolCalls([call])),
                .output("dry", of: call), .response("No."), .prompt("sure?"),
            ]
            for count in 1 ... 4 {
                XCTAssertEqual(
                    try messages([.instructions("be brief")] + history.suffix(count)),
                    [.system("be brief"), .user("sure?")], "\(count)")
            }
            let running = [history[1], history[2]]
            XCTAssertEqual(try messages(running).map(\.role), [.assistant, .tool])
        }

        func testThoughtsThatNothingFollowsAreLeftOut() throws {
            XCTAssertEqual(
                try messages([.prompt("hello"), .reasoning("hm")]), [.user("hello")])
        }

        func testStructuredContentIsItsJSON() throws {
            let content = try GeneratedContent(json: #"{"age":3}"#)
            let segments: [Transcript.Segment] = [
                .text(Transcript.TextSegment(content: "the child")),
                .structure(Transcript.StructuredSegment(schemaName: "Child", content: content)),
            ]
            XCTAssertEqual(
                try messages([.prompt(Transcript.Prompt(segments: segments))]),
                [.user("the child\n" + content.jsonString)])
        }

        func testAStructuredResponseIsWhatTheModelWroteAsLongAsItMeansTheSame() throws {
            let written = #"{ "b": 1.0,  "a": "x" }"#
            func response(_ json: String) throws -> Transcript {
                let content = try GeneratedContent(json: json)
                let segment = Transcript.StructuredSegment(schemaName: "", content: content)
                return Transcript(entries: [
                    .response(Transcript.Response(id: "r", segments: [.structure(segment)]))
                ])
            }
            let same = try TranscriptMessages(response(written), written: ["r": written])
            XCTAssertEqual(same.messages, [.assistant(written)])
            let edited = try response(#"{"b": 2, "a": "x"}"#)
            XCTAssertNotEqual(
                try TranscriptMessages(edited, written: ["r": written]).messages,
                [.assistant(written)])
        }

        func testAPromptShowsTheSchemaOfItsAnswerIfItShall() throws {
            let schema = try JSONDecoder().decode(
                GenerationSchema.self, from: Data(#"{"type": "string"}"#.utf8))
            func message(_ include: Bool?) throws -> String {
                let prompt = Transcript.Prompt(
                    segments: [.text(Transcript.TextSegment(content: "a word"))],
                    responseFormat: Transcript.ResponseFormat(schema: schema),
                    contextOptions: ContextOptions(includeSchemaInPrompt: include))
                return try messages([.prompt(prompt)])[0].text
            }
            XCTAssertEqual(try message(nil), "a word")
            XCTAssertEqual(try message(false), "a word")
            XCTAssertEqual(
                try message(true),
                #"a word\#n\#nAnswer with JSON of this schema: {"type":"string"}"#)
        }

        func testAnImageIsRefused() throws {
            let image = Transcript.ImageAttachment(imageURL: URL(filePath: "/tmp/photo.png"))
            let segment = Transcript.AttachmentSegment(content: .image(image))
            let prompt = Transcript.Prompt(segments: [.attachment(segment)])
            XCTAssertThrowsError(try messages([.prompt(prompt)])) { error in
                guard case LanguageModelError.unsupportedCapability(let missing) = error else {
                    return XCTFail("\(error)")
                }
                XCTAssertEqual(missing.capability, .vision)
                XCTAssertTrue(missing.debugDescription.contains("in words"))
            }
        }
    }
#endif
