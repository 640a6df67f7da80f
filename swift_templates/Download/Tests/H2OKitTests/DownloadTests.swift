import Foundation
import XCTest

@testable import H2OKit

final class DownloadStoreTests: FolderTestCase {
    private var fixture: DownloadFixture { DownloadFixture(root: folder) }

    func testAModelIsThereOnlyWhenAllOfItIs() throws {
        let store = try fixture.store(["config.json": "{}", "a/weights": "abcdefghi", "none": ""])
        try store.prepare()
        let names = ["0 a/weights", "4 a/weights", "8 a/weights", "0 config.json"]
        XCTAssertEqual(store.missing().map(\.name), names)

        for (piece, text) in zip(store.missing(), ["abcd", "efgh", "i", "{}"]) {
            XCTAssertNil(store.whole)
            XCTAssertTrue(try store.put(piece, from: fixture.arrived(text)))
        }
        XCTAssertEqual(store.missing(), [])
        let folder = try store.finish()

        XCTAssertEqual(store.whole, folder)
        XCTAssertEqual(try fixture.text(of: "a/weights", in: folder), "abcdefghi")
        XCTAssertEqual(try fixture.text(of: "none", in: folder), "")
        try ModelManifest.check(folder, everyByte: true)
    }

    func testAPieceWithOtherBytesIsNotTaken() throws {
        let store = try fixture.store(["weights": "abcdefgh"])
        try store.prepare()
        let pieces = store.missing()

        for wrong in ["abcx", "abc", "abcde", ""] {
            XCTAssertFalse(try store.put(pieces[0], from: fixture.arrived(wrong)))
        }
        XCTAssertEqual(store.missing(), pieces)
    }

    func testAPieceThatWasWrittenHalfIsMissing() throws {
        let store = try fixture.store(["weights": "abcdefgh"])
        try store.prepare()
        for (piece, text) in zip(store.missing(), ["abcd", "efgh"]) {
            _ = try store.put(piece, from: fixture.arrived(text))
        }
        let part = fixture.root.appending(path: "\(store.version).part/weights")

        try Data("abcdef".utf8).write(to: part)
        XCTAssertEqual(store.missing().map(\.offset), [4])
        try Data("ab\0\0efgh".utf8).write(to: part)
        XCTAssertEqual(store.missing().map(\.offset), [0])
    }

    func testAnEarlierVersionGivesTheFilesThatAreTheSameAndIsDeleted() throws {
        let earlier = try whole(["config.json": "1", "weights": "abcd"])
        let store = try fixture.store(["config.json": "2", "weights": "abcd"])
        try store.prepare()

        XCTAssertEqual(store.missing().map(\.path), ["config.json"])
        XCTAssertNotNil(earlier.whole, "the earlier model stays until the new one is complete")
        for piece in store.missing() { _ = try store.put(piece, from: fixture.arrived("2")) }
        _ = try store.finish()

        XCTAssertNil(earlier.whole)
        XCTAssertNotNil(store.whole)
    }

    func testPartsOfAnotherVersionAreDeletedAndNothingElse() throws {
        try fixture.store(["weights": "abcd"]).prepare()
        let store = try fixture.store(["weights": "efgh"])

        let others = ["mine.part", "mine", "\(store.version).zip"]
        for name in others {
            try FileManager.default.createDirectory(
                at: fixture.root.appending(path: name), withIntermediateDirectories: true)
        }
        try store.prepare()

        func names() throws -> [String] {
            try FileManager.default.contentsOfDirectory(atPath: fixture.root.path).sorted()
        }
        XCTAssertEqual(try names(), (others + ["\(store.version).part"]).sorted())
        for piece in store.missing() { _ = try store.put(piece, from: fixture.arrived("efgh")) }
        _ = try store.finish()
        XCTAssertEqual(try names(), (others + [store.version]).sorted())
    }

    func testAManifestWithoutPiecesOrWithAPathOutsideIsRefused() throws {
        let outside = try ["../weights", "/weights", "a/../../weights"].map {
            try fixture.manifest([$0: "abcd"])
        }
        let json = String(decoding: try fixture.manifest(["w": "abcd"]), as: UTF8.self)
        let others = [
            ("_size\":4", "_size\":0"), ("_size\":4", "_size\":3"), ("\"pieces\"", "\"p\""),
            ("\"piece_size\"", "\"s\""),
        ]
        .map { Data(json.replacingOccurrences(of: $0, with: $1).utf8) }
        for manifest in outside + others {
            XCTAssertThrowsError(try DownloadStore(manifest: manifest, root: fixture.root)) {
                XCTAssertEqual($0 as? H2OLoadingError, .noPieces)
            }
        }
    }

    private func whole(_ files: [String: String]) throws -> DownloadStore {
        let store = try fixture.store(files)
        try store.prepare()
        for piece in store.missing() {
            XCTAssertTrue(try store.put(piece, from: fixture.arrived(files[piece.path] ?? "")))
        }
        _ = try store.finish()
        return store
    }
}

final class PieceQueueTests: XCTestCase {
    private let pieces = (0 ..< 3).map {
        ModelPiece(path: "w", offset: 10 * $0, count: 10, fileSize: 30, sha256: "\($0)")
    }

    func testPiecesAreAskedForInOrderAndNotAllAtOnce() throws {
        var queue = PieceQueue(pieces, ofModelWith: 50)
        XCTAssertEqual(queue.next(atMost: 2), pieces[0])
        queue.started(pieces[0], task: 1)
        XCTAssertEqual(queue.next(atMost: 2), pieces[1])
        queue.started(pieces[1], task: 2)
        XCTAssertNil(queue.next(atMost: 2))

        try queue.ended(pieces[0], task: 1, nil)
        XCTAssertEqual(queue.next(atMost: 2), pieces[2])
    }

    func testBytesAreThoseThatWereThereAndThoseThatArrive() throws {
        var queue = started(PieceQueue(pieces, ofModelWith: 50))
        XCTAssertEqual(queue.received, 20)
        queue.arrived(7, task: 1)
        XCTAssertEqual(queue.received, 27)
        try queue.ended(pieces[0], task: 1, nil)
        XCTAssertEqual(queue.received, 30)
        queue.arrived(4, task: 2)
        try queue.ended(pieces[1], task: 2, .stopped)
        XCTAssertEqual(queue.received, 30, "bytes of a failed piece do not count")
    }

    func testAPieceThatFailsByChanceIsAskedForAgainAndTheThirdTimeIsTheLast() throws {
        let broken = H2OLoadingError.serverContent(offset: 0, path: "w")
        var queue = PieceQueue([pieces[0]], ofModelWith: 30)
        for task in 1 ..< PieceQueue.attempts {
            queue.started(pieces[0], task: task)
            try queue.ended(pieces[0], task: task, broken)
            XCTAssertEqual(queue.next(atMost: 1), pieces[0])
        }
        queue.started(pieces[0], task: 9)
        XCTAssertThrowsError(try queue.ended(pieces[0], task: 9, broken)) {
            XCTAssertEqual($0 as? H2OLoadingError, broken)
        }
    }

    func testWhatCannotSucceedLaterFailsAtOnce() throws {
        var queue = started(PieceQueue(pieces, ofModelWith: 30))
        let missing = H2OLoadingError.serverStatus(404, path: "w")
        XCTAssertThrowsError(try queue.ended(pieces[0], task: 1, missing)) {
            XCTAssertEqual($0 as? H2OLoadingError, missing)
        }
        try queue.ended(pieces[1], task: 2, .serverStatus(503, path: "w"))
    }

    func testTasksThatWereGivenUpAreNotHeard() throws {
        var queue = started(PieceQueue(pieces, ofModelWith: 30))
        queue.restart()
        XCTAssertEqual(queue.tasks, [])
        try queue.ended(pieces[0], task: 1, .serverStatus(404, path: "w"))
        XCTAssertEqual((0 ..< 3).map { _ in queue.next(atMost: 9)?.offset }, [0, 10, 20])
        XCTAssertTrue(queue.isEmpty)
    }

    func testAPieceThatArrivedWhileTheAppDidNotRunIsNotAskedFor() throws {
        var queue = PieceQueue(pieces, ofModelWith: 30)
        try queue.ended(pieces[0], task: 7, nil)
        XCTAssertEqual(queue.received, 10)
        XCTAssertEqual(queue.next(atMost: 1), pieces[1])
    }

    func testTheRateIsThatOfTheLastSeconds() throws {
        var rate = TransferRate()
        let start = ContinuousClock.now
        XCTAssertNil(rate.add(total: 1_000, at: start))
        XCTAssertEqual(rate.add(total: 3_000, at: start + .seconds(2)), 1_000)
        XCTAssertEqual(rate.add(total: 3_000, at: start + .seconds(4)), 500)
        XCTAssertEqual(rate.add(total: 3_000, at: start + .seconds(9)), 0)
    }

    func testTheTimeThatIsLeftFollowsFromTheRate() {
        var progress = ModelDownloadProgress(received: 100, total: 400)
        XCTAssertNil(progress.remaining)
        progress.bytesPerSecond = 0
        XCTAssertNil(progress.remaining)
        progress.bytesPerSecond = 50
        XCTAssertEqual(progress.remaining, .seconds(6))
    }

    private func started(_ queue: PieceQueue) -> PieceQueue {
        var queue = queue
        for (task, _) in zip(1..., pieces.prefix(2)) {
            if let piece = queue.next(atMost: 2) { queue.started(piece, task: task) }
        }
        return queue
    }
}

/// A model of a few bytes, in pieces of four.
struct DownloadFixture {
    private static let pieceSize = 4
    let root: URL

    /// A store for a model of these files.
    func store(_ files: [String: String]) throws -> DownloadStore {
        try DownloadStore(manifest: manifest(files), root: root)
    }

    func manifest(_ files: [String: String]) throws -> Data {
        let listed = files.sorted { $0.key < $1.key }.map { path, text -> [String: Any] in
            [
                "path": path, "size": text.utf8.count, "sha256": Self.digest(text),
                "pieces": Self.pieces(text).map(Self.digest),
            ]
        }
        return try JSONSerialization.data(
            withJSONObject: [
                "format": 1, "model": "m", "files": listed, "piece_size": Self.pieceSize,
                "digest": "", "prompt_chunk": 512,
                "chat": [
                    "template": true, "system": true, "tools": true, "drops_thoughts": false,
                    "stops": [Int](), "stop_texts": [String](),
                ],
            ], options: .sortedKeys)
    }

    /// Creates a file with the bytes of a downloaded piece.
    func arrived(_ text: String) throws -> URL {
        let file = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
        try Data(text.utf8).write(to: file)
        return file
    }

    func text(of path: String, in folder: URL) throws -> String {
        try String(contentsOf: folder.appending(path: path), encoding: .utf8)
    }

    private static func pieces(_ text: String) -> [String] {
        stride(from: 0, to: text.count, by: pieceSize).map {
            String(text.dropFirst($0).prefix(pieceSize))
        }
    }

    private static func digest(_ text: String) -> String {
        FileDigest.sha256(of: Data(text.utf8))
    }
}
