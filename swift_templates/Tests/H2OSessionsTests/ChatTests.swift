import Foundation
import H2OKit
import H2OSessions
import H2OTestModels
import XCTest

/// What a chat screen shows.
@MainActor
final class ChatTests: XCTestCase {
    private struct NoModel: LocalizedError {
        var errorDescription: String? { "There is no model." }
    }

    private func folder() throws -> URL {
        let folder = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
        addTeardownBlock { try? FileManager.default.removeItem(at: folder) }
        return folder
    }

    private func makeChat(
        _ fixture: SessionFixture, instructions: String? = "be brief", folder: URL? = nil
    ) -> H2OChat {
        H2OChat(
            instructions: instructions, folder: folder,
            options: H2OSession.Options(sampling: .greedy, maxTokens: fixture.maxTokens)
        ) { fixture.makeModel() }
    }

    private func say(_ text: String, _ chat: H2OChat) async {
        chat.draft = text
        await chat.send()
    }

    /// A chat whose long reply has begun.
    private func replyingChat(folder: URL? = nil) async throws -> (H2OChat, Task<Void, Never>) {
        var fixture = try SessionFixture()
        fixture.maxTokens = 100_000
        let chat = makeChat(fixture, folder: folder)
        await chat.load()
        let (calls, called) = AsyncStream<Void>.makeStream()
        fixture.model.onCall = { called.yield() }
        let reply = Task { await say("hello", chat) }
        for await _ in calls { break }
        return (chat, reply)
    }

    private func texts(_ chat: H2OChat) -> [String] { chat.messages.map(\.text) }

    func testAMessageAndItsReplyAreShown() async throws {
        let chat = makeChat(try SessionFixture())
        XCTAssertEqual(chat.state, .loading)
        await chat.load()
        XCTAssertEqual(chat.state, .ready)
        XCTAssertFalse(chat.canSend)
        await say(" hello ", chat)
        XCTAssertEqual(chat.messages.map(\.isUser), [true, false])
        XCTAssertEqual(chat.messages.first?.text, "hello")
        XCTAssertFalse(try XCTUnwrap(chat.messages.last).text.isEmpty)
        XCTAssertEqual(chat.usage.stop, .length)
        XCTAssertFalse(try XCTUnwrap(chat.kept).shares.isEmpty)
        XCTAssertEqual([chat.draft, chat.problem], ["", nil])
    }

    func testAModelThatIsNotLoadedCanBeLoadedAgain() async throws {
        let fixture = try SessionFixture()
        let chat = H2OChat {
            guard await Attempts.shared.next() > 1 else { throw NoModel() }
            return fixture.makeModel()
        }
        await chat.load()
        XCTAssertEqual(chat.state, .failed)
        XCTAssertEqual(chat.problem, "There is no model.")
        await chat.load()
        XCTAssertEqual(chat.state, .ready)
        XCTAssertNil(chat.problem)
    }

    func testAnErrorIsApartFromTheReplies() async throws {
        let long = String(repeating: "long ", count: 40)
        let chat = makeChat(try SessionFixture(), instructions: long)
        await chat.load()
        await say("hello", chat)
        XCTAssertEqual(texts(chat), [])
        XCTAssertTrue(try XCTUnwrap(chat.problem).hasPrefix("The system prompt has"))
        XCTAssertEqual(chat.draft, "hello")
        XCTAssertEqual(chat.state, .ready)
    }

    func testAConversationSurvivesTheApp() async throws {
        let folder = try folder()
        let first = makeChat(try SessionFixture(), folder: folder)
        await first.load()
        await say("hello", first)

        let next = makeChat(try SessionFixture(), folder: folder)
        await next.load()
        XCTAssertEqual(next.messages, first.messages)
        await say("more", next)
        XCTAssertGreaterThan(next.usage.cachedTokens, 0)
        await say("more", first)
        XCTAssertEqual(next.messages, first.messages)
    }

    func testItsMessagesOutliveCachesThatCannotBeUsed() async throws {
        let folder = try folder()
        let first = makeChat(try SessionFixture(), folder: folder)
        await first.load()
        await say("hello", first)

        let other = makeChat(try SessionFixture(maxSize: 48), folder: folder)
        await other.load()
        XCTAssertEqual(other.messages, first.messages)
        await say("more", other)
        XCTAssertEqual(other.usage.cachedTokens, 0)
        XCTAssertEqual(other.messages.prefix(2), first.messages[...])
    }

    func testAToolIsCalledInEachLaunchAndOnlyTheAnswersOfTheModelAreShown() async throws {
        let parameters: JSONValue = .object(["type": .string("object")])
        let clock = try H2OTool(
            name: "clock", description: "Tells the time.", parameters: parameters
        ) { _ in "Noon." }
        let call = "<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>"
        let folder = try folder()
        var shown = [String]()
        for launch in 1 ... 2 {
            let fixture = try TemplateFixture(.qwen3)
            fixture.scripted.replies = [call, "It is noon."]
            let chat = H2OChat(tools: [clock], folder: folder) { fixture.model }
            await chat.load()
            await say("What time is it?", chat)
            shown += ["What time is it?", "It is noon."]
            XCTAssertEqual(texts(chat), shown)
            XCTAssertEqual(chat.usage.cachedTokens > 0, launch == 2, "caches go on with tools")
            XCTAssertNil(chat.problem)
        }
    }

    func testARegeneratedReplyTakesThePlaceOfTheLastOne() async throws {
        let fixture = try SessionFixture()
        let chat = makeChat(fixture)
        await chat.load()
        await say("hello", chat)
        let before = texts(chat)
        await chat.regenerate()
        XCTAssertEqual(texts(chat), before)
        fixture.model.script = [7, 8, EchoModel.stop]
        await chat.regenerate()
        XCTAssertEqual(texts(chat).first, "hello")
        XCTAssertEqual(texts(chat).count, 2)
        XCTAssertNotEqual(texts(chat), before)
    }

    func testAnEditedMessageReplacesWhatFollowedIt() async throws {
        let chat = makeChat(try SessionFixture())
        await chat.load()
        await say("one", chat)
        let one = chat.messages
        await say("two", chat)
        await say("three", chat)
        let two = try XCTUnwrap(chat.messages.first { $0.text == "two" })
        chat.edit(two.id)
        XCTAssertEqual(chat.draft, "two")
        chat.cancelEditing()
        XCTAssertEqual(chat.draft, "")
        chat.edit(two.id)
        await say("other", chat)
        XCTAssertEqual(chat.messages.count, 4)
        XCTAssertEqual(chat.messages[..<2], one[...])
        XCTAssertEqual(chat.messages[2].text, "other")
        XCTAssertNil(chat.editing)
    }

    func testAConversationThatIsClearedDuringAReplyIsGone() async throws {
        let folder = try folder()
        let (chat, reply) = try await replyingChat(folder: folder)
        await chat.clear()
        await reply.value
        XCTAssertEqual(chat.messages, [])
        XCTAssertEqual(chat.state, .ready)
        XCTAssertFalse(FileManager.default.fileExists(atPath: folder.path(percentEncoded: false)))
    }

    func testAReplyThatIsStoppedStays() async throws {
        let (chat, reply) = try await replyingChat()
        await chat.stop()
        await reply.value
        XCTAssertEqual(chat.messages.first?.text, "hello")
        XCTAssertEqual(chat.usage.stop, .cancelled)
        XCTAssertEqual(chat.state, .ready)
    }
}

/// Counts how often a model was asked for.
private actor Attempts {
    static let shared = Attempts()
    private var count = 0

    func next() -> Int {
        count += 1
        return count
    }
}
