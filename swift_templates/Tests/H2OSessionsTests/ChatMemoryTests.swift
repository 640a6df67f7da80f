import Foundation
import H2OChatScreen
import H2OKit
import H2OSessions
import H2OTestModels
import XCTest

/// Tests what a chat screen shows about the caches: the words that they keep, their memory, and a
/// text that is much longer than the caches.
@MainActor
final class ChatMemoryTests: XCTestCase {
    private let book =
        "the box\n\nthe box is red. "
        + String(repeating: "a man walks by. it rains all day.\n", count: 60)

    private func shares(_ words: [H2ORememberedWord]) -> [Float] { words.map(\.share) }

    func testEachWordSaysHowMuchOfItTheCachesHold() async throws {
        let fixture = try SessionFixture(maxSize: 64, saying: "one two", "three")
        let chat = await loadedChat(fixture)
        chat.maxTokens = 20
        await chat.say("hello there")
        XCTAssertNil(chat.words)
        await chat.showWords(true)
        for message in chat.messages {
            let words = try XCTUnwrap(chat.words?[message.id])
            XCTAssertEqual(words.map(\.text).joined(), message.text)
            XCTAssertEqual(Set(shares(words)), [1], "nothing was evicted yet")
        }
        XCTAssertEqual(chat.words?[1]?.map(\.text), ["hello ", "there"])
        XCTAssertEqual(chat.words?[2]?.map(\.text), ["one ", "two"])

        await chat.say(String(repeating: "more and more ", count: 10))
        // A token is a letter, so the shares of words are the shares of positions.
        let keptPositions = try XCTUnwrap(chat.kept)
        let session = try XCTUnwrap(chat.session)
        let texts = await session.conversation.texts
        let positions = try XCTUnwrap(texts[1])
        let letters = keptPositions.shares[positions]
        let hello = letters.prefix(6).reduce(0, +) / 6
        XCTAssertEqual(try XCTUnwrap(chat.words?[1]?[0].share), hello, accuracy: 1e-5)
        XCTAssertTrue(shares(try XCTUnwrap(chat.words?[1])).contains { $0 < 1 })
        await chat.showWords(false)
        XCTAssertNil(chat.words)
    }

    func testPositionsOfTextsAreThoseOfTheirLettersInEveryTurn() async throws {
        let fixture = try SessionFixture(maxSize: 4096, saying: "one two", "three", "four")
        let session = fixture.makeModel().makeSession(
            instructions: "be brief", options: H2OSession.Options(sampling: .greedy))
        for text in ["hello there", " and then? ", "so"] {
            _ = try await session.respond(to: text)
        }
        let letters = Array(fixture.model.readText)
        let texts = await session.conversation.texts
        for (index, message) in await session.messages.enumerated().dropFirst() {
            let positions = try XCTUnwrap(texts[index], "\(index)")
            let text = message.text.trimmingCharacters(in: .whitespaces)
            XCTAssertEqual(String(letters[positions]), text)
        }
    }

    func testWhatRecallBroughtBackIsSaid() async throws {
        var fixture = try SessionFixture(maxSize: 64)
        fixture.configuration = try H2OConfiguration(
            maxSize: 64, recentBudget: 8, recall: H2ORecall(rows: 16, ask: 8, archiveBits: 16))
        let chat = await loadedChat(fixture)
        await chat.say(String(repeating: "the red box is here. ", count: 12))
        await chat.showWords(true)
        await chat.say("the red box?")
        let words = try XCTUnwrap(chat.words).values.flatMap { $0 }
        XCTAssertTrue(words.contains(where: \.isRecalled))
        XCTAssertTrue(words.allSatisfy { !$0.isRecalled || $0.share > 0 })
    }

    func testATextFarLongerThanTheCacheIsReadInFlatMemory() async throws {
        var fixture = try SessionFixture(maxSize: 64)
        fixture.promptChunk = 64
        let chat = await loadedChat(fixture)
        let questions = ["what is red?"]
        let watched = Task { @MainActor in
            var shares = [Double]()
            while chat.state != .ready || shares.isEmpty {
                if let share = chat.readShare, share != shares.last { shares.append(share) }
                await Task.yield()
            }
            return shares
        }
        await chat.read(book, questions: questions)
        let shares = await watched.value
        XCTAssertEqual(shares, shares.sorted())
        XCTAssertGreaterThan(shares.count, 2)
        XCTAssertEqual(chat.state, .ready)
        XCTAssertNil(chat.readShare)
        XCTAssertEqual(chat.suggestions, questions)
        XCTAssertEqual(chat.messages.map(\.isUser), [true, false])

        let readings = chat.memory.filter { $0.tokens > 64 }
        XCTAssertGreaterThan(readings.count, 10)
        let evicted = readings.map(\.evicted)
        XCTAssertEqual(evicted, evicted.sorted())
        let (first, last) = (try XCTUnwrap(readings.first), try XCTUnwrap(readings.last))
        // The rows of 2 layers, each with 1 head, head dims of 8, and float32.
        XCTAssertEqual(last.evicted, (last.tokens - 64) * 2 * 16 * 4)
        XCTAssertEqual(last.unbounded - last.active, last.evicted)
        XCTAssertLessThan(
            last.active - first.active, last.evicted / 4, "the memory in use stays flat")
        XCTAssertEqual(last.limit, last.active + (1 << 30))

        await chat.say("what is red?")
        XCTAssertNil(chat.problem)
        XCTAssertGreaterThan(chat.usage.cachedTokens, book.count)
        XCTAssertLessThan(chat.usage.readTokens, 40, "the text is not read again")
        XCTAssertEqual(chat.suggestions, [])
    }

    func testReadingThatIsStoppedLeavesNothing() async throws {
        var fixture = try SessionFixture(maxSize: 64)
        fixture.promptChunk = 16
        let chat = await loadedChat(fixture, prompts: ["hi"])
        let (calls, called) = AsyncStream<Void>.makeStream()
        fixture.model.onCall = { called.yield() }
        let reading = Task { await chat.read(book, questions: ["?"]) }
        for await _ in calls { break }
        await chat.stop()
        await reading.value
        XCTAssertEqual(chat.state, .ready)
        XCTAssertEqual(chat.messages, [])
        XCTAssertEqual(chat.suggestions, ["hi"])
        XCTAssertNil(chat.problem)
        await chat.say("hello")
        XCTAssertEqual(chat.messages.count, 2)
    }

    func testATextThatTheModelHasNoPositionsForIsReadToAParagraph() async throws {
        var fixture = try SessionFixture(maxSize: 64)
        fixture.positions = 400
        let chat = await loadedChat(fixture)
        let paragraph = String(repeating: "it rains. ", count: 9)
        let text = Array(repeating: paragraph, count: 9).joined(separator: "\n\n")
        await chat.read(text, questions: [])
        let read = try XCTUnwrap(chat.messages.first?.text)
        XCTAssertEqual(read, Array(repeating: paragraph, count: 3).joined(separator: "\n\n"))
    }

    func testReadingsAreFewHoweverLongTheConversationIs() async throws {
        var fixture = try SessionFixture(maxSize: 64)
        fixture.promptChunk = 4
        let chat = await loadedChat(fixture)
        await chat.read(book, questions: [])
        XCTAssertGreaterThan(book.count / 4, 400)
        XCTAssertLessThanOrEqual(chat.memory.count, 200)
        let tokens = chat.memory.map(\.tokens)
        XCTAssertEqual(tokens, tokens.sorted())
    }
}
