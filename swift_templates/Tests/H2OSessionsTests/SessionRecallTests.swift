import Foundation
import H2OKit
import H2OSessions
import XCTest

/// Tests recall in a conversation: its figures, and the place of its archive.
final class SessionRecallTests: FolderTestCase {
    private func fixture(inFiles: Bool = false) throws -> SessionFixture {
        try .recalling(archives: folder, inFiles: inFiles)
    }

    private var conversations: [String] {
        (try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? []
    }

    private let prompt = String(repeating: "tell me more. ", count: 4)

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

    func testTheLastChunkHasAllTokensThatAsk() async throws {
        var fixture = try fixture()
        fixture.promptChunk = 50
        let session = fixture.makeSession()

        _ = try await session.respond(to: prompt)

        let prompts = fixture.model.calls.map(\.count).filter { $0 > 1 }
        XCTAssertGreaterThan(prompts.count, 1)
        XCTAssertGreaterThanOrEqual(try XCTUnwrap(prompts.last), 8)
    }

    func testAnArchiveInFilesIsDeletedWithItsConversation() async throws {
        let fixture = try fixture(inFiles: true)
        var session: H2OSession? = fixture.makeSession()
        _ = try await session?.respond(to: prompt)
        XCTAssertEqual(conversations.count, 1)
        let layers = try FileManager.default.contentsOfDirectory(
            atPath: folder.appending(path: conversations[0]).path)
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
        let layer = folder.appending(path: "left/layer-000", directoryHint: .isDirectory)
        try FileManager.default.createDirectory(at: layer, withIntermediateDirectories: true)
        try Data().write(to: layer.appending(path: "manifest"))

        _ = try fixture(inFiles: true).makeSession()

        XCTAssertEqual(conversations, open)
        _ = try await running.respond(to: prompt)
    }
}
