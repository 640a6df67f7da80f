import Foundation
import H2OSessions
import XCTest

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
            for try await _ in await session.streamResponse(to: prompt) { say("part") }
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
