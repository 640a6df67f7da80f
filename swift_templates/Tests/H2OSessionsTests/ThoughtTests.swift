import Foundation
import H2OKit
import H2OSessions
import H2OTestModels
import XCTest

/// Tests the thoughts of a model before its answer.
final class ThoughtTests: XCTestCase {
    func testThoughtsAreNotPartOfTheAnswer() async throws {
        let fixture = try SessionFixture(.qwen3, saying: "<think>\nA greeting.\n</think>\n\nHello.")
        let session = fixture.makeModel().makeSession()

        let parts = try await session.parts(to: "Hi")

        let thoughts = parts.compactMap { part in
            if case .thought(let text) = part { text } else { nil }
        }
        XCTAssertEqual(thoughts.joined(), "A greeting.")
        XCTAssertEqual(parts.compactMap(\.text).joined(), "Hello.")
        assertEqual(
            await session.transcript.last, .assistant("Hello.", thoughts: "A greeting."))
        XCTAssertGreaterThan(try XCTUnwrap(parts.last?.usage).thoughtTokens, 10)
    }

    func testMarksInAQuestionAreText() async throws {
        for template in [ChatTemplate.qwen3, .llama3, .solar] {
            for thinking in [nil, false] {
                let thinks = thinking ?? true
                let fixture = try SessionFixture(template, thinks: thinks, saying: "No tag.", "No.")
                let session = fixture.makeModel().makeSession(
                    options: H2OSession.Options(thinking: thinking))

                let reply = try await session.respond(to: "What does <think> mean in HTML?")

                XCTAssertEqual(reply.content, "No tag.", "\(template)")
                XCTAssertEqual(reply.thoughts, "", "\(template)")
                assertEqual(try await session.respond(to: "<think>").content, "No.")
            }
        }
    }

    func testMarksInTheAnswerOfAModelThatDoesNotThinkAreText() async throws {
        let answer = "<think> is no tag."
        let fixture = try SessionFixture(.llama3, saying: answer)
        let model = fixture.makeModel()
        XCTAssertFalse(model.canThink)
        XCTAssertTrue(try SessionFixture(.qwen3).makeModel().canThink)
        assertEqual(try await model.makeSession().respond(to: "Hi").content, answer)
    }

    func testThoughtsOfAModelThatIsNotToThinkAreSeparatedToo() async throws {
        let fixture = try SessionFixture(
            .qwen3, thinks: false, saying: "<think>\nhm\n</think>\n\nYes.")
        let session = fixture.makeModel().makeSession(options: H2OSession.Options(thinking: false))

        let reply = try await session.respond(to: "Hi")

        XCTAssertEqual(reply.content, "Yes.")
        XCTAssertEqual(reply.thoughts, "hm")
    }

    func testThoughtsThatTheTemplateDropsDoNotStayInTheCaches() async throws {
        let cases: [(ChatTemplate, begin: String, kept: String)] = [
            (.qwen3, "<think>\n", "<|im_start|>assistant"),
            (.qwen3Thinking, "", "<|im_start|>assistant\n"),
        ]
        for (template, begin, kept) in cases {
            let fixture = try SessionFixture(template)
            fixture.model.replies = [
                begin + "A greeting.\n</think>\n\nHello.",
                begin + "Again?\n</think>\n\nHello again.",
            ]
            let session = fixture.makeModel().makeSession(instructions: "Be brief.")
            _ = try await session.respond(to: "Hi")
            let first = fixture.model.readText.count
            _ = try await session.respond(to: "Hi again")

            let read = String(fixture.model.readText.dropFirst(first))
            XCTAssertTrue(read.contains("Hello.<|im_end|>\n<|im_start|>user\nHi again"), read)
            // The caches have read the conversation as the template renders it, up to the beginning
            // of the last reply.
            let expected = try await fixture.tokens(before: kept, in: session)
            assertEqual(await session.tokensSeen, expected, "\(template)")
        }
    }

    func testThoughtsStayWhileToolsAreCalledAndGoWithTheTurn() async throws {
        let fixture = try SessionFixture(.qwen3)
        let call =
            "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\":1,\"b\":2}}\n</tool_call>"
        fixture.model.replies = [
            "<think>\nAdd them.\n</think>\n\n" + call, "<think>\nDone.\n</think>\n\nIt is 3.",
            "Bye.",
        ]
        let session = fixture.makeModel().makeSession(tools: [try adder()])
        assertEqual(try await session.respond(to: "What is 1 + 2?").content, "It is 3.")
        XCTAssertTrue(
            fixture.model.readText.contains(
                "</think>\n\n\(call)<|im_end|>\n<|im_start|>user\n<tool_"))
        let turn = fixture.model.readText.count

        _ = try await session.respond(to: "Thanks")

        let read = String(fixture.model.readText.dropFirst(turn))
        XCTAssertTrue(read.contains("\(call)<|im_end|>"), "the call is read again")
        XCTAssertFalse(read.contains("Add them."))
        let messages = await session.transcript
        let text = try fixture.rendered(messages, tools: [try adder()])
        assertEqual(await session.tokensSeen, TestTokenizer(.qwen3).tokens(of: text).count)
    }

    func testStoppedThoughtsDoNotStayInTheCachesAndASnapshotIsKept() async throws {
        let fixture = try SessionFixture(.qwen3)
        let thoughts = String(repeating: "hm ", count: 500)
        fixture.model.replies = ["<think>\n\(thoughts)</think>\n\nHello.", "Yes."]
        let session = fixture.makeModel().makeSession(instructions: "Be brief.")
        var count = 0
        for try await part in session.streamResponse(to: "Hi") {
            guard case .thought = part else { continue }
            count += 1
            if count == 20 { Task { await session.cancel() } }
        }

        await session.cancel()
        let messages = await session.transcript
        XCTAssertFalse(try XCTUnwrap(messages.last?.thoughts).isEmpty)
        let expected = try await fixture.tokens(in: session)
        assertEqual(await session.tokensSeen, expected)
        assertEqual(await session.conversation.snapshots.tokens.last, expected)
        let reply = try await session.respond(to: "Hi again")
        XCTAssertEqual(reply.content, "Yes.")
        XCTAssertGreaterThan(reply.usage.cachedTokens, 0)
    }

    func testNothingIsHeldTwiceOnceTheAnswerBeginsWithoutThoughts() async throws {
        for thinking in [nil, false] {
            let fixture = try SessionFixture(.qwen3, thinks: thinking ?? true)
            fixture.model.replies = ["Hello there."]
            let session = fixture.makeModel().makeSession(
                options: H2OSession.Options(thinking: thinking))
            let text = try fixture.rendered([.user("Hi")]) + "\n<|im_start|>assistant"
            let prompt = TestTokenizer(.qwen3).tokens(of: text).count
            for try await part in session.streamResponse(to: "Hi") {
                guard case .text = part else { continue }
                let tokens = await session.conversation.snapshots.tokens
                XCTAssertFalse(tokens.contains(prompt), "\(tokens)")
            }
        }
    }

    func testWhatIsKeptWhileTheModelThinksHasTheLimitsOfSnapshots() async throws {
        let thoughts = String(repeating: "hm ", count: 50)
        for (limits, warns, inFiles) in [
            (H2OSnapshotLimits(memory: 0), false, true), (H2OSnapshotLimits(), true, true),
            (.none, false, false),
        ] {
            var fixture = try SessionFixture(.qwen3)
            fixture.snapshots = limits
            fixture.model.replies = ["<think>\n\(thoughts)</think>\n\nHello.", "Yes."]
            let session = fixture.makeModel().makeSession(instructions: "Be brief.")
            var bytes = [H2OSnapshotLimits]()
            for try await part in session.streamResponse(to: "Hi") {
                guard case .thought = part else { continue }
                if warns { await session.model.releaseMemory() }
                bytes.append(await session.conversation.snapshots.bytes)
            }

            XCTAssertGreaterThan(bytes.count, 20)
            let released = bytes.filter { $0.memory == 0 && ($0.files > 0) == inFiles }
            // The last entries have a snapshot in memory, because the turn has ended: generation
            // does not wait for the reader of the parts.
            if warns { XCTAssertGreaterThan(released.count, 0) }
            if !warns { XCTAssertEqual(released, bytes) }
            let tokens = try await fixture.tokens(in: session)
            assertEqual(await session.tokensSeen, tokens)
            let reply = try await session.respond(to: "Hi again")
            XCTAssertEqual(reply.content, "Yes.")
            // Without snapshots, the prompt is read again instead of the thoughts.
            XCTAssertEqual(reply.usage.cachedTokens, limits == .none ? 0 : tokens)
        }
    }

    func testAnotherReplyThinksOnlyIfItIsToThink() async throws {
        let fixture = try SessionFixture(.qwen3)
        fixture.model.replies = ["<think>\nhm\n</think>\n\nHello.", "Hi.", "<think>\nhm"]
        let session = fixture.makeModel().makeSession(instructions: "Be brief.")
        _ = try await session.respond(to: "Hi")
        for thinking in [false, true] {
            let count = fixture.model.readText.count
            let options = H2OSession.Options(thinking: thinking)
            for try await _ in session.regenerate(options: options) {}
            let new = fixture.model.readText.dropFirst(count)
            XCTAssertEqual(new.contains("<think>\n\n</think>\n\n"), !thinking, "\(new)")
        }
    }

    func testTurningThinkingOffReadsNothingAgain() async throws {
        let fixture = try SessionFixture(.qwen3, saying: "<think>\nhm\n</think>\n\nHello.")
        let session = fixture.makeModel().makeSession(instructions: "Be brief.")
        _ = try await session.respond(to: "Hi")

        let usage = try await session.respond(
            to: "Hi", options: H2OSession.Options(thinking: false)
        ).usage

        XCTAssertGreaterThan(usage.cachedTokens, 20)
        XCTAssertLessThan(usage.readTokens, usage.promptTokens)
    }
}
