import H2OKit
import XCTest

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
        XCTAssertEqual(queue.received, 30, "what a broken piece had does not count")
    }

    func testAPieceThatFailsByChanceIsAskedForAgainAndTheThirdTimeIsTheLast() throws {
        let broken = H2OLoadingError.server(.content(offset: 0), path: "w")
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
        let missing = H2OLoadingError.server(.status(404), path: "w")
        XCTAssertThrowsError(try queue.ended(pieces[0], task: 1, missing)) {
            XCTAssertEqual($0 as? H2OLoadingError, missing)
        }
        try queue.ended(pieces[1], task: 2, .server(.status(503), path: "w"))
    }

    func testTasksThatWereGivenUpAreNotHeard() throws {
        var queue = started(PieceQueue(pieces, ofModelWith: 30))
        queue.restart()
        XCTAssertEqual(queue.tasks, [])
        try queue.ended(pieces[0], task: 1, .server(.status(404), path: "w"))
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
