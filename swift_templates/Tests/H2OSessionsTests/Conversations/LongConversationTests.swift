import Foundation
import H2OSessions
import H2OTestModels
import MLX
import XCTest

/// Tests many turns of random text. Each turn must read only new tokens, memory must not grow, and
/// a change must read only the messages after the snapshot before the change.
final class LongConversationTests: XCTestCase {
    /// The tokens of a turn, and the bytes in use at its end.
    private struct Turn: Codable {
        /// Tokens of the prompt's text.
        let new: Int
        /// Tokens read, including the template's tokens.
        let read: Int
        let generated: Int
        /// Tokens that the caches have seen.
        let seen: Int
        /// Bytes of MLX's arrays.
        let active: Int
        /// Bytes of the process; 0 if the system does not report them.
        let resident: Int
        /// Bytes of the messages' texts, which the session keeps.
        let text: Int
    }

    private struct Report: Codable {
        var turns = [Turn]()
        /// The number of the turn that was changed, from 1.
        var changed = 0
        /// The numbers of tokens that were not read again and that were read again.
        var cached = 0
        var read = 0
        /// The number of tokens of each snapshot from which the conversation could continue.
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
        assertEqual(await session.keptPositions.count, report.turns.last?.seen)

        report.changed = max(2, turns * 4 / 5)
        var messages = await session.transcript
        messages[2 * (report.changed - 1)].text = prompt(of: tokens, model)
        try await session.setTranscript(messages)
        report.snapshots = await session.conversation.snapshots.tokens
        let usage = try await session.respond(to: prompt(of: tokens, model)).usage
        (report.cached, report.read) = (usage.cachedTokens, usage.readTokens)
        check(report, tokens)

        if let folder = ConversationSettings.folder {
            let file = folder.appending(path: "long-conversation.json")
            try JSONEncoder().encode(report).write(to: file)
        }
    }

    /// Makes a model that keeps five snapshots of a conversation.
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
            text: await session.transcript.map(\.text.utf8.count).reduce(0, +))
    }

    /// A text with at least this many tokens, and few more.
    private func prompt(of tokens: Int, _ model: H2OModel) -> String {
        var prompt = text.next(tokens)
        while count(prompt, model) < tokens { prompt += text.next(tokens - count(prompt, model)) }
        return prompt
    }

    private func count(_ text: String, _ model: H2OModel) -> Int {
        model.loaded.context.tokenizer.encode(text: text, addSpecialTokens: false).count
    }

    private func check(_ turns: [Turn]) {
        var tokensSeen = 0
        for (index, turn) in turns.enumerated() {
            XCTAssertLessThanOrEqual(turn.read - turn.new, 12, "turn \(index + 1)")
            XCTAssertGreaterThanOrEqual(turn.read, turn.new, "turn \(index + 1)")
            XCTAssertEqual(turn.seen, tokensSeen + turn.read + turn.generated, "turn \(index + 1)")
            tokensSeen = turn.seen
        }
        // Allows a tenth more, because a model without weights has few arrays, and their buffers
        // vary in size.
        let most = turns.prefix(5).map(\.active).max() ?? 0
        XCTAssertLessThan(turns.map(\.active).max() ?? 0, most + most / 10)
    }

    private func check(_ report: Report, _ tokens: Int) {
        let before = report.turns[report.changed - 2].seen
        let nearest = report.snapshots.filter { $0 <= before }.max()
        XCTAssertEqual(report.cached, nearest)
        XCTAssertLessThan(
            report.snapshots.count, report.turns.count, "the oldest snapshots were deleted")
        let follows = report.turns[report.turns.count - 1].seen - report.cached
        XCTAssertEqual(report.read, follows + tokens, accuracy: 12 * report.turns.count)
    }

    /// Resident bytes of the process, without freed memory that the allocator keeps. 0 if the
    /// system does not report them as Linux does.
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

/// Saves a conversation after each turn, for a program that kills this process at any time.
final class KilledConversationTests: XCTestCase {
    private let options = H2OSession.Options(sampling: .greedy, maxTokens: 8)

    /// Continues the saved conversation, prints each step, and writes `messages.json` at the end.
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
        var turn = await session.transcript.count / 2
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
        let messages = await session.transcript.map(\.text)
        try JSONEncoder().encode(messages).write(to: folder.appending(path: "messages.json"))
    }

    /// Prints a line without buffering.
    private func say(_ line: String) {
        FileHandle.standardOutput.write(Data("conversation: \(line)\n".utf8))
    }
}

/// Letters and spaces from a linear congruential generator. They are the same for the same seed.
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
        // Copies the text, because a new string has no unused capacity.
        return String(decoding: text, as: UTF8.self)
    }
}
