import Foundation
import H2OChatScreen
import H2OKit
import H2OSessions
import H2OTestModels
import XCTest

/// Tests the state of a chat screen.
@MainActor
final class ChatTests: FolderTestCase {
    private struct NoModel: LocalizedError {
        var errorDescription: String? { "There is no model." }
    }

    /// Makes a chat whose model answers from a script.
    private func scriptedChat(
        _ replies: [H2OModel.ScriptStep]..., prompts: [String] = [], folder: URL? = nil
    ) async -> H2OChat {
        let chat = H2OChat(prompts: prompts, folder: folder) { .scripted(replies) }
        chat.pace.shows = .zero
        await chat.load()
        return chat
    }

    /// Makes a chat in which a reply that does not end is awaited, or has some text.
    private func replyingChat(
        hasText: Bool = false, folder: URL? = nil
    ) async -> (H2OChat, Task<Void, Never>) {
        let chat = await scriptedChat(
            (hasText ? ["Once upon ", "a "] : []) + [.delay(.seconds(3600))], folder: folder)
        let reply = Task { await chat.say("hello") }
        while chat.messages.count < 2 || hasText && chat.messages[1].text.isEmpty {
            await Task.yield()
        }
        return (chat, reply)
    }

    private func texts(_ chat: H2OChat) -> [String] { chat.messages.map(\.text) }

    func testOnlyPagesOfTheWebCanBeOpenedAndTheirAddressIsShown() throws {
        let pages = [
            "https://example.com/a?b=c#d": ("example.com", "https://example.com/a?b=c#d"),
            "HTTP://example.com:8080": ("example.com", "HTTP://example.com:8080"),
            "https://apple.com@evil.example/": ("evil.example", "https://apple.com@evil.example/"),
        ]
        for (text, (host, address)) in pages {
            let link = try XCTUnwrap(ReplyLink(XCTUnwrap(URL(string: text))))
            XCTAssertEqual(link.host, host)
            XCTAssertEqual(link.address, address)
        }
        for text in ["https://\u{430}pple.com/\u{202e}moc", "https://example.com/\u{e9} \u{1b}"] {
            guard let link = URL(string: text).flatMap(ReplyLink.init) else { continue }
            XCTAssertTrue((link.host + link.address).utf8.allSatisfy { 0x21 ... 0x7E ~= $0 })
        }
        for text in [
            "javascript:alert(1)", "tel:112", "sms:112&body=x", "file:///etc/passwd", "/a", "a",
            "#a",
            "shortcuts://run-shortcut?name=x", "httpss://example.com", "https:example.com",
            "https:///a", "data:text/html,x", "mailto:a@example.com", "app-settings:",
        ] {
            XCTAssertNil(URL(string: text).flatMap(ReplyLink.init), text)
        }
    }

    func testAMessageAndItsReplyAreShown() async throws {
        let chat = makeChat(try SessionFixture())
        XCTAssertEqual(chat.state, .loading)
        await chat.load()
        XCTAssertEqual(chat.state, .ready)
        XCTAssertFalse(chat.canSend)
        await chat.say(" hello ")
        XCTAssertEqual(chat.messages.map(\.isUser), [true, false])
        XCTAssertEqual(chat.messages.first?.text, "hello")
        XCTAssertFalse(try XCTUnwrap(chat.messages.last).text.isEmpty)
        XCTAssertEqual(chat.usage.stop, .length)
        let memory = try XCTUnwrap(chat.memory)
        XCTAssertGreaterThan(memory.tokens, 0)
        XCTAssertLessThanOrEqual(memory.remembered, memory.tokens)
        XCTAssertEqual([chat.draft, chat.problem], ["", nil])
    }

    func testAModelThatIsNotLoadedCanBeLoadedAgain() async throws {
        let attempts = Recorder<Void>()
        let chat = H2OChat {
            guard attempts.add(()) > 0 else { throw NoModel() }
            return .scripted()
        }
        await chat.load()
        XCTAssertEqual(chat.state, .failed)
        XCTAssertEqual(chat.problem, "There is no model.")
        await chat.load()
        XCTAssertEqual(chat.state, .ready)
        XCTAssertNil(chat.problem)
    }

    func testAnErrorIsApartFromTheReplies() async throws {
        let error = H2OSessionError.systemPromptTooLong(tokens: 70, atMost: 60)
        let chat = await scriptedChat(["Hel", .error(error)])
        await chat.say("hello")
        XCTAssertEqual(texts(chat), [])
        XCTAssertFalse(
            try XCTUnwrap(chat.problem).contains("--max-kv"), "the message is for the user")
        XCTAssertTrue(try XCTUnwrap(chat.problemDetails).hasPrefix("The system prompt has"))
        XCTAssertEqual(chat.draft, "hello")
        XCTAssertEqual(chat.state, .ready)
    }

    func testEachErrorOfTheDeviceHasATextForTheUserAndOneForTheDeveloper() async throws {
        let file = URL(filePath: "/private/messages.json")
        let plan = MemoryPlan(weights: 1 << 30, caches: 0, prefill: 0, bufferCache: 0)
        let errors: [(any Error, user: String, developer: String)] = [
            (H2OLoadingError.noMemory(needs: ["m": plan], free: 1), "Close other apps", "m needs"),
            (H2OLoadingError.noSpace(needed: 2, free: 1), "Free some storage", "MB more"),
            (H2OCacheError.noSpace(file), "no storage left", "messages.json"),
            (H2OCacheError.locked(file), "Unlock it", "protectedDataDidBecomeAvailable"),
            (InBackgroundError(), "while the app is open", "only while it is open"),
            (H2OSessionError.tooHot, "cool down", "thermalState"),
            (H2OSessionError.lowPowerMode, "Turn it off", "refusesInLowPowerMode"),
        ]
        for (error, user, developer) in errors {
            let chat = await scriptedChat([.error(error)])
            await chat.say("hello")
            let failed = H2OChat { throw error }
            await failed.load()
            for chat in [chat, failed] {
                let (problem, details) = (chat.problem ?? "", chat.problemDetails ?? "")
                XCTAssertTrue(problem.contains(user), problem)
                XCTAssertTrue(details.contains(developer), details)
                XCTAssertFalse(problem.contains("/private"), problem)
            }
        }
    }

    func testAConversationSurvivesTheApp() async throws {
        let first = await loadedChat(try SessionFixture(), folder: folder)
        await first.say("hello")
        await first.save()

        let next = await loadedChat(try SessionFixture(), folder: folder)
        XCTAssertEqual(next.messages, first.messages)
        await next.say("more")
        XCTAssertGreaterThan(next.usage.cachedTokens, 0)
        await first.say("more")
        XCTAssertEqual(next.messages, first.messages)
    }

    func testItsMessagesOutliveCachesThatCannotBeUsed() async throws {
        let first = await loadedChat(try SessionFixture(), folder: folder)
        await first.say("hello")
        await first.save()

        let second = await loadedChat(try SessionFixture(maxSize: 48), folder: folder)
        XCTAssertEqual(second.messages, first.messages)
        await second.say("more")
        XCTAssertEqual(second.usage.cachedTokens, 0)
        XCTAssertEqual(second.messages.prefix(2), first.messages[...])
    }

    func testAToolIsCalledInEachLaunchAndOnlyTheAnswersOfTheModelAreShown() async throws {
        let parameters: JSONValue = .object(["type": .string("object")])
        let clock = try H2OTool(
            name: "clock", description: "Tells the time.", parameters: parameters
        ) { _ in "Noon." }
        let call = "<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>"
        var expected = [String]()
        for launch in 1 ... 2 {
            let fixture = try SessionFixture(.qwen3, thinks: false, saying: call, "It is noon.")
            let chat = H2OChat(tools: [clock], folder: folder) { fixture.makeModel() }
            await chat.load()
            await chat.say("What time is it?")
            expected += ["What time is it?", "It is noon."]
            XCTAssertEqual(texts(chat), expected)
            XCTAssertEqual(
                chat.usage.cachedTokens > 0, launch == 2, "the caches continue with tools")
            XCTAssertNil(chat.problem)
            await chat.save()
        }
    }

    func testTheFirstReplyOfAModelThatThinksIsAnAnswer() async throws {
        let fixture = try SessionFixture(.qwen3, thinks: false, saying: "Hello.")
        let chat = await loadedChat(fixture)
        XCTAssertTrue(chat.canThink)
        XCTAssertFalse(chat.thinks)
        await chat.say("Hi")
        XCTAssertEqual(texts(chat), ["Hi", "Hello."])
        XCTAssertEqual(chat.usage.thoughtTokens, 0)
        XCTAssertFalse(chat.canContinue)
    }

    func testThoughtsAreShownWhileTheyArrive() async throws {
        let chat = await scriptedChat([.thought("A greeting."), "Hello."])
        XCTAssertTrue(chat.canThink)
        let thoughts = Task { @MainActor in
            while chat.messages.last.map({ $0.isUser || $0.thoughts.isEmpty }) ?? true {
                await Task.yield()
            }
            return chat.messages.last
        }
        await chat.say("Hi")
        let message = await thoughts.value
        XCTAssertTrue("A greeting.".hasPrefix(try XCTUnwrap(message?.thoughts)))
        XCTAssertEqual(chat.messages.last?.text, "Hello.")
        XCTAssertEqual(chat.messages.last?.thoughts, "A greeting.")
    }

    func testThoughtsThatAreCutSaySoAndGetTheirAnswer() async throws {
        let long = String(repeating: "hm ", count: 300)
        var fixture = try SessionFixture(.qwen3, saying: "<think>\n\(long)</think>\n\nHello.")
        fixture.maxTokens = 40
        let chat = await loadedChat(fixture)
        chat.thinks = true
        await chat.say("Hi")
        XCTAssertEqual(chat.messages.last?.text, "")
        XCTAssertEqual(chat.messages.last?.isCutOff, true)
        XCTAssertTrue(chat.canContinue)

        let before = fixture.model.readText.count
        // The continued reply begins with empty thoughts, as a reply whose thoughts have ended.
        await chat.continueReply()
        let read = String(fixture.model.readText.dropFirst(before))
        XCTAssertTrue(read.contains("<think>\n\n</think>\n\n"), read)
        let prompt = read.components(separatedBy: "</think>")[0]
        XCTAssertFalse(prompt.contains("hm"), "thoughts are not read again")
        XCTAssertEqual(chat.messages.count, 2)
    }

    func testAReplyThatIsCutGoesOn() async throws {
        let fixture = try SessionFixture(saying: "one two three")
        let chat = await loadedChat(fixture)
        await chat.say("count")
        XCTAssertEqual(texts(chat), ["count", "one tw"])
        XCTAssertEqual(chat.messages.last?.isCutOff, true)

        // The model has chosen the "o" already.
        fixture.model.script = TestTokenizer().tokens(of: " th|")
        await chat.continueReply()
        XCTAssertEqual(texts(chat), ["count", "one two th"])
        XCTAssertFalse(chat.canContinue)
        XCTAssertGreaterThan(chat.usage.cachedTokens, 0, "the instructions are not read again")
        await chat.say("more")
        XCTAssertEqual(texts(chat).count, 4)
        XCTAssertGreaterThan(
            chat.usage.cachedTokens, 20, "the caches continue after the partial reply")
    }

    func testAModelThatSaysNothingIsNoEmptyBubble() async throws {
        let chat = await scriptedChat([], ["Hi."])
        await chat.say("hello")
        XCTAssertEqual(texts(chat), ["hello"])
        XCTAssertTrue(chat.canContinue)
        await chat.continueReply()
        XCTAssertEqual(texts(chat), ["hello", "Hi."])
    }

    func testNothingThatWasTypedOrAnsweredIsLostWhereverTheAppEnds() async throws {
        let reply = String(repeating: "abcdefgh ", count: 6)
        var fixture = try SessionFixture(saying: reply)
        fixture.maxTokens = 200
        let chat = makeChat(fixture, folder: folder)
        (chat.pace.shows, chat.pace.keeps) = (.zero, .zero)
        await chat.load()
        // A copy of the file at any time is the file that an app leaves if it ends at this time.
        // The caches are written only after the reply.
        let copies = folder.appendingPathExtension("copies")
        addTeardownBlock { try? FileManager.default.removeItem(at: copies) }
        let moments = Recorder<Void>()
        let open = folder.appending(path: chat.conversation)
        fixture.model.onCall = {
            let moment = moments.add(())
            guard moment < 50 else { return }
            let copy = copies.appending(path: "\(moment)")
            let data = try? Data(contentsOf: open.appending(path: "messages.json"))
            let folderCopy = copy.appending(path: open.lastPathComponent)
            try? FileManager.default.createDirectory(
                at: folderCopy, withIntermediateDirectories: true)
            try? data?.write(to: folderCopy.appending(path: "messages.json"))
        }
        await chat.say("hello")
        XCTAssertEqual(texts(chat).last, reply)
        fixture.model.onCall = nil

        var answered = Set<Int>()
        for moment in 0 ..< 50 {
            let next = await loadedChat(
                try SessionFixture(), folder: copies.appending(path: "\(moment)"))
            XCTAssertEqual(texts(next).first, "hello", "\(moment)")
            let text = texts(next).dropFirst().first ?? ""
            XCTAssertTrue(reply.hasPrefix(text), text)
            answered.insert(text.count)
            XCTAssertTrue(next.canContinue)
            await next.continueReply()
            XCTAssertNil(next.problem)
            XCTAssertEqual(texts(next).count, 2)
            XCTAssertTrue(try XCTUnwrap(texts(next).last).hasPrefix(text))
        }
        XCTAssertGreaterThan(answered.count, 1, "answered messages are saved too")
    }

    func testTheCachesAreWrittenOnceWhenItIsQuiet() async throws {
        let chat = makeChat(try SessionFixture(), folder: folder)
        chat.pace.quiet = .seconds(3600)
        await chat.load()
        for text in ["one", "two"] { await chat.say(text) }
        let caches = folder.appending(path: "\(chat.conversation)/session")
            .path(percentEncoded: false)
        XCTAssertFalse(FileManager.default.fileExists(atPath: caches))
        chat.pace.quiet = .zero
        await chat.say("three")
        let begun = ContinuousClock.now
        while !FileManager.default.fileExists(atPath: caches + "/conversation.safetensors") {
            guard begun.duration(to: .now) < .seconds(60) else {
                return XCTFail("the caches were not written")
            }
            await Task.yield()
        }
        let files = try FileManager.default.contentsOfDirectory(atPath: caches)
        XCTAssertFalse(files.contains { $0.hasPrefix("turn-") }, "one state was written")
    }

    func testARegeneratedReplyTakesThePlaceOfTheLastOne() async throws {
        let chat = await scriptedChat(["Hi."], ["Good day."])
        await chat.say("hello")
        XCTAssertEqual(texts(chat), ["hello", "Hi."])
        await chat.regenerate()
        XCTAssertEqual(texts(chat), ["hello", "Good day."])
    }

    func testAnEditedMessageReplacesWhatFollowedIt() async throws {
        let chat = await scriptedChat(["1"], ["2"], ["3"], ["4"])
        await chat.say("one")
        let firstTurn = chat.messages
        await chat.say("two")
        await chat.say("three")
        let two = try XCTUnwrap(chat.messages.first { $0.text == "two" })
        chat.edit(two.id)
        XCTAssertEqual(chat.draft, "two")
        chat.cancelEditing()
        XCTAssertEqual(chat.draft, "")
        chat.edit(two.id)
        await chat.say("other")
        XCTAssertEqual(chat.messages[..<2], firstTurn[...])
        XCTAssertEqual(texts(chat), ["one", "1", "other", "4"])
        XCTAssertNil(chat.editing)
    }

    func testAConversationThatIsClearedDuringAReplyIsGone() async throws {
        let (chat, reply) = await replyingChat(folder: folder)
        await chat.delete(chat.conversation)
        await reply.value
        XCTAssertEqual(chat.messages, [])
        XCTAssertEqual(chat.state, .ready)
        XCTAssertEqual(chat.conversations, [])
        XCTAssertEqual(try FileManager.default.contentsOfDirectory(atPath: folder.path), [])
    }

    func testAConversationThatIsLeftIsThereToReturnTo() async throws {
        let chat = await loadedChat(try SessionFixture(), folder: folder)
        await chat.say("first thing")
        let (first, messages) = (chat.conversation, chat.messages)
        await chat.beginConversation()
        XCTAssertEqual(chat.messages, [])
        await chat.say("second thing")
        XCTAssertEqual(chat.conversations.map(\.title), ["second thing", "first thing"])

        await chat.open(first)
        XCTAssertEqual(chat.messages, messages)
        await chat.say("more")
        XCTAssertGreaterThan(chat.usage.cachedTokens, 20, "the caches of the conversation continue")
        XCTAssertLessThan(chat.usage.readTokens, 20)

        let second = try XCTUnwrap(chat.conversations.first { $0.id != first })
        await chat.delete(second.id)
        XCTAssertEqual(chat.conversations.map(\.id), [first])
        let next = await loadedChat(try SessionFixture(), folder: folder)
        XCTAssertEqual(next.conversation, first)
        XCTAssertEqual(next.messages, chat.messages)
    }

    func testALeftReplyIsKeptAsFarAsItCame() async throws {
        for hasText in [false, true] {
            let folder = folder.appending(path: "\(hasText)")
            let (chat, reply) = await replyingChat(hasText: hasText, folder: folder)
            let first = chat.conversation
            await chat.beginConversation()
            await reply.value
            XCTAssertEqual(chat.messages, [])
            XCTAssertEqual(chat.state, .ready)
            await chat.open(first)
            XCTAssertEqual(texts(chat).first, "hello")
            XCTAssertEqual(chat.messages.last?.isCutOff, hasText)
            XCTAssertTrue(chat.canContinue)
        }
    }

    func testSettingsSurviveTheApp() async throws {
        let chat = makeChat(try SessionFixture(), folder: folder)
        XCTAssertEqual(chat.maxTokens, 6)
        (chat.thinks, chat.maxTokens) = (true, nil)
        let next = makeChat(try SessionFixture(), folder: folder)
        XCTAssertTrue(next.thinks)
        XCTAssertNil(next.maxTokens)
        next.maxTokens = 3
        await next.load()
        await next.say("hello")
        XCTAssertEqual(next.usage.generatedTokens, 3)
    }

    func testPromptsAreProposedUntilSomethingIsAsked() async throws {
        let chat = await scriptedChat(["Hi."], prompts: ["what is it?"])
        XCTAssertEqual(chat.suggestions, ["what is it?"])
        await chat.say("hello")
        XCTAssertEqual(chat.suggestions, [])
        XCTAssertEqual(chat.transcript, "> hello\n\nHi.")
    }

    func testAStoppedReplyStaysAndWithoutOneTheMessageIsTheDraftAgain() async throws {
        for hasText in [false, true] {
            let (chat, reply) = await replyingChat(hasText: hasText)
            await chat.stop()
            await reply.value
            XCTAssertEqual(chat.usage.stop, .cancelled)
            XCTAssertEqual(chat.state, .ready)
            XCTAssertNil(chat.problem)
            XCTAssertEqual(chat.draft, hasText ? "" : "hello")
            XCTAssertEqual(chat.messages.map(\.isUser), hasText ? [true, false] : [])
            XCTAssertEqual(chat.messages.last?.isCutOff, hasText ? true : nil)
        }
    }
}

/// Makes a chat screen, which loads no model yet.
@MainActor
private func makeChat(
    _ fixture: SessionFixture, folder: URL? = nil
) -> H2OChat {
    H2OChat(
        instructions: "be brief", folder: folder,
        options: H2OSession.Options(sampling: .greedy, maxTokens: fixture.maxTokens)
    ) { fixture.makeModel() }
}

/// Makes a chat screen with its model.
@MainActor
func loadedChat(
    _ fixture: SessionFixture, folder: URL? = nil
) async -> H2OChat {
    let chat = makeChat(fixture, folder: folder)
    await chat.load()
    return chat
}

extension H2OChat {
    /// Sends a message, and returns when the reply has ended.
    func say(_ text: String) async {
        draft = text
        await send()
    }
}
