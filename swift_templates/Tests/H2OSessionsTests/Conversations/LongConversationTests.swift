import Foundation
import H2OSessions
import MLX
import XCTest

/// Many turns of random text: each reads what is new, memory does not grow, and a change reads
/// what follows the snapshot before it.
final class LongConversationTests: XCTestCase {
    /// What a turn took. Bytes are those at its end.
    private struct Turn: Codable {
        /// Tokens of the prompt's text.
        let new: Int
        /// Tokens read, those of the template around it included.
        let read: Int
        let generated: Int
        /// Tokens that the caches have seen.
        let seen: Int
        /// Of MLX's arrays.
        let active: Int
        /// Of the process, where the system says.
        let resident: Int
        /// Of the messages' texts, which the caller keeps.
        let text: Int
    }

    private struct Report: Codable {
        var turns = [Turn]()
        /// The turn that was changed, from 1 on.
        var changed = 0
        /// Tokens that were not read again, and those that were.
        var cached = 0
        var read = 0
        /// Tokens after each turn from which the conversation could go on.
        var snapshots = [Int]()
    }

    private let options = H2OSession.Options(sampling: .greedy, maxTokens: 16)
    private var text = RandomText(seed: 17)

    func testEachTurnReadsWhatIsNewAndAChangeWhatFollows() async throws {
        let (turns, tokens) = (ConversationSettings.turns(12), ConversationSettings.tokens(200))
        let model = try await modelWithFiveSnapshots()
        let session = model.makeSession(options: options)
        var report = Report()
        for _ in 0 ..< turns {
            report.turns.append(try await turn(of: session, model, tokens))
        }
        check(report.turns)
        let positions = await session.keptPositions.count
        XCTAssertEqual(positions, report.turns.last?.seen)

        report.changed = max(2, turns * 4 / 5)
        var messages = await session.messages
        messages[2 * (report.changed - 1)].text = prompt(of: tokens, model)
        try await session.setMessages(messages)
        report.snapshots = await session.conversation.snapshots.tokens
        let usage = try await session.respond(to: prompt(of: tokens, model)).usage
        (report.cached, report.read) = (usage.cachedTokens, usage.readTokens)
        check(report, tokens)

        if let folder = ConversationSettings.folder {
            let file = folder.appending(path: "long-conversation.json")
            try JSONEncoder().encode(report).write(to: file)
        }
    }

    /// A model that keeps five snapshots: older ones are thinned out.
    private func modelWithFiveSnapshots() async throws -> H2OModel {
        let session = try await ConversationSettings.model().makeSession(options: options)
        _ = try await session.respond(to: text.next(100))
        let bytes = await session.conversation.snapshots.bytes.memory
        return try await ConversationSettings.model(
            snapshots: H2OSnapshotLimits(memory: 5 * bytes, files: 0))
    }

    private func turn(
        of session: H2OSession, _ model: H2OModel, _ tokens: Int
    ) async throws -> Turn {
        let prompt = prompt(of: tokens, model)
        let usage = try await session.respond(to: prompt).usage
        return Turn(
            new: count(prompt, model), read: usage.readTokens, generated: usage.generatedTokens,
            seen: await session.tokensSeen, active: Memory.activeMemory,
            resident: Self.residentBytes,
            text: await session.messages.map(\.text.utf8.count).reduce(0, +))
    }

    /// A text of so many tokens, or a few more.
    private func prompt(of tokens: Int, _ model: H2OModel) -> String {
        var prompt = text.next(tokens)
        while count(prompt, model) < tokens { prompt += text.next(tokens - count(prompt, model)) }
        return prompt
    }

    private func count(_ text: String, _ model: H2OModel) -> Int {
        model.loaded.context.tokenizer.encode(text: text, addSpecialTokens: false).count
    }

    private func check(_ turns: [Turn]) {
        var seen = 0
        for (index, turn) in turns.enumerated() {
            XCTAssertLessThanOrEqual(turn.read - turn.new, 12, "turn \(index + 1)")
            XCTAssertGreaterThanOrEqual(turn.read, turn.new, "turn \(index + 1)")
            XCTAssertEqual(turn.seen, seen + turn.read + turn.generated, "turn \(index + 1)")
            seen = turn.seen
        }
        // The arrays of a model without weights are so few that their buffers' sizes show.
        let most = turns.prefix(5).map(\.active).max() ?? 0
        XCTAssertLessThan(turns.map(\.active).max() ?? 0, most + most / 10)
    }

    private func check(_ report: Report, _ tokens: Int) {
        let before = report.turns[report.changed - 2].seen
        let nearest = report.snapshots.filter { $0 <= before }.max()
        XCTAssertEqual(report.cached, nearest)
        XCTAssertLessThan(report.snapshots.count, report.turns.count, "the oldest are gone")
        let follows = report.turns[report.turns.count - 1].seen - report.cached
        XCTAssertEqual(report.read, follows + tokens, accuracy: 12 * report.turns.count)
    }

    /// Without what was freed and stays with the process for the next allocation. 0 where the
    /// system does not say it like Linux.
    private static var residentBytes: Int {
        if let symbol = dlsym(nil, "malloc_trim") {
            typealias Trim = @convention(c) (Int) -> Int32
            _ = unsafeBitCast(symbol, to: Trim.self)(0)
        }
        let pages = (try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8))?
            .split(separator: " ").dropFirst().first.flatMap { Int($0) }
        return (pages ?? 0) * Int(getpagesize())
    }
}

/// A conversation that is saved after each turn, for a program that ends it at any moment.
final class KilledConversationTests: XCTestCase {
    private let options = H2OSession.Options(sampling: .greedy, maxTokens: 8)

    /// Goes on from where it was saved, says what it does, and writes `messages.json` at the end.
    func testItGoesOnFromItsLastWholeTurn() async throws {
        guard let folder = ConversationSettings.folder else {
            throw XCTSkip("H2O_CONVERSATION names no folder for a conversation.")
        }
        let saved = folder.appending(path: "saved", directoryHint: .isDirectory)
        let model = try await ConversationSettings.model()
        var session = model.makeSession(options: options)
        if FileManager.default.fileExists(atPath: saved.path) {
            session = try await H2OSession.restore(from: saved, model: model, options: options)
        }
        var turn = await session.messages.count / 2
        say("resumed \(turn)")
        while turn < ConversationSettings.turns(6) {
            var text = RandomText(seed: UInt64(turn))
            let prompt = text.next(ConversationSettings.tokens(100))
            for try await _ in session.streamResponse(to: prompt) { say("part") }
            turn += 1
            say("replied \(turn)")
            try await session.save(to: saved)
            say("saved \(turn)")
        }
        let messages = await session.messages.map(\.text)
        try JSONEncoder().encode(messages).write(to: folder.appending(path: "messages.json"))
    }

    /// A line that is written at once.
    private func say(_ line: String) {
        FileHandle.standardOutput.write(Data("conversation: \(line)\n".utf8))
    }
}

/// Letters and spaces by a linear congruential generator: the same for the same seed.
struct RandomText {
    private var state: UInt64

    init(seed: UInt64) {
        state = seed
    }

    /// Returns `count` characters, the first of which is a letter.
    mutating func next(_ count: Int) -> String {
        let letters = Array("etaoinshrdlucmfwyp ".utf8)
        var text = [UInt8]()
        while text.count < count {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            let letter = letters[Int(state >> 33) % letters.count]
            if letter != letters[letters.count - 1] || !text.isEmpty { text.append(letter) }
        }
        // A text of its own takes no more room than it needs.
        return String(decoding: text, as: UTF8.self)
    }
}
