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
