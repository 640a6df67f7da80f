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

    func testAReplySaysWhatWasReadForIt() async throws {
        let session = try fixture().makeSession()

        let first = try await session.respond(to: prompt).usage
        let second = try await session.respond(to: prompt).usage

        for usage in [first, second] {
            XCTAssertGreaterThan(try XCTUnwrap(usage.archiveReads), 0)
        }
        XCTAssertGreaterThan(
            try XCTUnwrap(second.archiveBytes), try XCTUnwrap(first.archiveBytes))
        XCTAssertEqual(conversations, [])
    }

    func testWithoutRecallItSaysNothing() async throws {
        let session = try SessionFixture(maxSize: 32).makeSession()

        let usage = try await session.respond(to: prompt).usage

        XCTAssertNil(usage.archiveReads)
        XCTAssertNil(usage.archiveBytes)
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

    func testABranchReadsTheSameFromFilesAndFromMemory() async throws {
        var sessions = [
            try fixture(inFiles: true).makeSession(), try fixture(inFiles: false).makeSession(),
        ]
        var (reads, texts) = ([Int](), [[String]]())
        for session in sessions {
            for _ in 0 ..< 3 { _ = try await session.respond(to: longPrompt) }
            let fork = try await session.fork()
            try await session.keep(4)
            var (replies, read) = ([String](), 0)
            for branch in [session, fork] {
                for _ in 0 ..< 2 {
                    let response = try await branch.respond(to: "what was it " + longPrompt)
                    replies.append(response.content)
                    read += response.usage.archiveReads ?? 0
                }
            }
            texts.append(replies)
            reads.append(read)
        }
        XCTAssertEqual(texts[0], texts[1])
        XCTAssertEqual(reads[0], reads[1])
        XCTAssertGreaterThan(reads[0], 0)
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
        XCTAssertEqual(ours.content, theirs.content)
        XCTAssertEqual(ours.usage.archiveReads, theirs.usage.archiveReads)
        XCTAssertGreaterThan(ours.usage.archiveReads ?? 0, 0)
    }
}
