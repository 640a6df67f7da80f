import Foundation
import H2OKit
import H2OSessions
import XCTest

/// Tests recall in a conversation: its figures, and the place of its archive, which forked
/// conversations share as links.
final class SessionRecallTests: FolderTestCase {
    private func fixture(inFiles: Bool = false) throws -> SessionFixture {
        try .recalling(archives: archives, inFiles: inFiles)
    }

    private var archives: URL { folder.appending(path: "archives") }

    private var conversations: [String] {
        (try? FileManager.default.contentsOfDirectory(atPath: archives.path)) ?? []
    }

    private let prompt = String(repeating: "tell me more. ", count: 4)
    private let longPrompt = String(repeating: "tell me more. ", count: 30)

    func testAReplySaysWhatWasRecalledForIt() async throws {
        let session = try fixture().makeSession()

        let first = try await session.respond(to: prompt).usage
        let second = try await session.respond(to: prompt).usage

        for usage in [first, second] {
            XCTAssertGreaterThan(try XCTUnwrap(usage.recalledRows), 0)
            XCTAssertGreaterThan(try XCTUnwrap(usage.recallDuration), .zero)
        }
        XCTAssertGreaterThan(
            try XCTUnwrap(second.archiveBytes), try XCTUnwrap(first.archiveBytes))
        XCTAssertEqual(conversations, [])
    }

    func testWithoutRecallItSaysNothing() async throws {
        let session = try SessionFixture(maxSize: 32).makeSession()

        let usage = try await session.respond(to: prompt).usage

        XCTAssertNil(usage.recalledRows)
        XCTAssertNil(usage.recallDuration)
        XCTAssertNil(usage.archiveBytes)
        assertEqual(await session.keptPositions.recalls, false)
    }

    func testRecalledPositionsAreAmongTheKeptOnes() async throws {
        let session = try fixture().makeSession()
        _ = try await session.respond(to: prompt)

        let keptPositions = await session.keptPositions

        let all = keptPositions.recalledShares(in: keptPositions.count)
        XCTAssertEqual(all.count, keptPositions.shares.count)
        XCTAssertEqual(all.reduce(0, +), 8, accuracy: 0.01)
        for (recalled, share) in zip(all, keptPositions.shares) {
            XCTAssertLessThanOrEqual(recalled, share)
        }
        XCTAssertEqual(keptPositions.recalledShares(in: 10).count, 10)
    }

    func testAnArchiveInFilesIsDeletedWithItsConversation() async throws {
        let fixture = try fixture(inFiles: true)
        var session: H2OSession? = fixture.makeSession()
        _ = try await session?.respond(to: prompt)
        XCTAssertEqual(conversations.count, 1)
        let layers = try FileManager.default.contentsOfDirectory(
            atPath: archives.appending(path: conversations[0]).path)
        XCTAssertEqual(layers.sorted(), ["layer-000", "layer-001", "lock"])

        await session?.reset()
        XCTAssertEqual(conversations, [])

        _ = try await session?.respond(to: prompt)
        XCTAssertEqual(conversations.count, 1)
        session = nil
        assertEqual(try await holdsOnceReleased { conversations.isEmpty }, true)
    }

    func testWhatACrashLeftIsDeletedAtTheNextStart() async throws {
        let running = try fixture(inFiles: true).makeSession()
        _ = try await running.respond(to: prompt)
        let open = conversations
        for name in [UUID().uuidString, "mine"] {
            let layer = archives.appending(path: "\(name)/layer-000", directoryHint: .isDirectory)
            try FileManager.default.createDirectory(at: layer, withIntermediateDirectories: true)
            try Data().write(to: layer.appending(path: "manifest"))
        }

        _ = try fixture(inFiles: true).makeSession()

        XCTAssertEqual(conversations.sorted(), (open + ["mine"]).sorted())
        _ = try await running.respond(to: prompt)
    }

    func testABranchRecallsTheSameFromFilesAndFromMemory() async throws {
        var sessions = [
            try fixture(inFiles: true).makeSession(), try fixture(inFiles: false).makeSession(),
        ]
        var (rows, texts) = ([Int](), [[String]]())
        for session in sessions {
            for _ in 0 ..< 3 { _ = try await session.respond(to: longPrompt) }
            let fork = try await session.fork()
            try await session.keep(4)
            var (replies, recalled) = ([String](), 0)
            for branch in [session, fork] {
                for _ in 0 ..< 2 {
                    let response = try await branch.respond(to: "what was it " + longPrompt)
                    replies.append(response.text)
                    recalled += response.usage.recalled?.rows ?? 0
                }
            }
            texts.append(replies)
            rows.append(recalled)
        }
        XCTAssertEqual(texts[0], texts[1])
        XCTAssertEqual(rows[0], rows[1])
        XCTAssertGreaterThan(rows[0], 0)
        XCTAssertFalse(conversations.isEmpty)
        sessions = []
        assertEqual(try await holdsOnceReleased { conversations.isEmpty }, true)
    }

    func testASavedConversationHasItsArchive() async throws {
        let saved = folder.appending(path: "saved", directoryHint: .isDirectory)
        var original: H2OSession? = try fixture(inFiles: true).makeSession()
        let twin = try fixture(inFiles: false).makeSession()
        for _ in 0 ..< 3 {
            _ = try await original?.respond(to: longPrompt)
            _ = try await twin.respond(to: longPrompt)
        }
        try await original?.save(to: saved)
        try await original?.save(to: saved)
        original = nil
        assertEqual(try await holdsOnceReleased { conversations.isEmpty }, true)
        let names = try FileManager.default.contentsOfDirectory(atPath: saved.path)
        XCTAssertEqual(names.count, 2, "\(names)")

        let restored = try await H2OSession.restore(
            from: saved, model: fixture(inFiles: true).makeModel(),
            options: .init(sampling: .greedy, maxTokens: 6))

        let (ours, theirs) = (
            try await restored.respond(to: longPrompt), try await twin.respond(to: longPrompt)
        )
        XCTAssertEqual(ours.text, theirs.text)
        XCTAssertEqual(ours.usage.recalled?.rows, theirs.usage.recalled?.rows)
        XCTAssertGreaterThan(ours.usage.recalled?.rows ?? 0, 0)
    }
}
