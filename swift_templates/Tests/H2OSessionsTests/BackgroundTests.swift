import Foundation
import H2OKit
import H2OSessions
import XCTest

final class BackgroundTests: XCTestCase {
    func testNothingIsComputedInTheBackgroundAndTheReplyGoesOnAfterwards() async throws {
        let undisturbed = try await SessionFixture().makeSession().respond(to: "hi").text
        let fixture = try SessionFixture()
        let session = fixture.makeSession()

        var text = ""
        var parts = 0
        for try await part in await session.streamResponse(to: "hi") {
            text += part.text ?? ""
            parts += 1
            guard parts == 2 else { continue }
            XCTAssertTrue(fixture.background.close())
            let calls = fixture.model.calls.count
            for _ in 0 ..< 200 { await Task.yield() }
            XCTAssertEqual(fixture.model.calls.count, calls)
            fixture.background.open()
        }

        XCTAssertEqual(text, undisturbed)
    }

    func testClosingWaitsForTheStepThatRuns() async throws {
        let order = Recorder()
        let background = BackgroundGuard { order.add("queue is empty") }
        try await background.begin()
        let closing = Task.detached {
            let idle = background.close(within: 60)
            order.add("closed \(idle)")
        }
        while !background.isClosed { await Task.yield() }
        order.add("step ends")
        background.end()
        await closing.value

        XCTAssertEqual(order.entries, ["step ends", "queue is empty", "closed true"])
    }

    func testClosingDoesNotWaitForEver() async throws {
        let order = Recorder()
        let background = BackgroundGuard { order.add("queue is empty") }
        try await background.begin()

        XCTAssertFalse(background.close(within: 0))

        XCTAssertEqual(order.entries, [], "waiting for the queue could take as long")
        background.end()
        XCTAssertEqual(order.entries, ["queue is empty"], "the step waits for what it queued")
    }

    func testAGuardThatBeginsClosedLetsStepsWaitUntilItOpens() async throws {
        let background = BackgroundGuard(isClosed: true) {}
        let step = Task { try await background.withGPU { background.isClosed } }
        for _ in 0 ..< 100 { await Task.yield() }
        background.open()

        let wasClosed = try await step.value
        XCTAssertFalse(wasClosed)
    }

    func testAStepThatWaitsCanBeCancelled() async throws {
        let background = BackgroundGuard {}
        background.close()
        for cancelFirst in [true, false] {
            let waiting = Task {
                if cancelFirst { while !Task.isCancelled { await Task.yield() } }
                try await background.begin()
            }
            waiting.cancel()
            await assertThrows(try await waiting.value) {
                XCTAssertTrue($0 is CancellationError)
            }
        }
    }

    func testItFollowsTheNotificationsOfAnAppsLife() {
        let names = (Notification.Name("h2o.background"), Notification.Name("h2o.foreground"))
        let background = BackgroundGuard {}
        background.follow(background: names.0, foreground: names.1)

        NotificationCenter.default.post(name: names.0, object: nil)
        XCTAssertTrue(background.isClosed)
        NotificationCenter.default.post(name: names.1, object: nil)
        XCTAssertFalse(background.isClosed)
    }
}

private final class Recorder: @unchecked Sendable {
    private let lock = NSLock()
    private var recorded = [String]()

    var entries: [String] { lock.withLock { recorded } }

    func add(_ entry: String) { lock.withLock { recorded.append(entry) } }
}
