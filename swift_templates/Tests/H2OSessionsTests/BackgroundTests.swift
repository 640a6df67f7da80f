import Foundation
import H2OSessions
import H2OTestModels
import XCTest

@testable import H2OKit

final class BackgroundTests: XCTestCase {
    func testNothingIsComputedInTheBackgroundAndTheReplyGoesOnAfterwards() async throws {
        let undisturbed = try await SessionFixture().makeSession().respond(to: "hi").content
        let fixture = try SessionFixture()
        let session = fixture.makeSession()

        var text = ""
        var parts = 0
        for try await part in session.streamResponse(to: "hi") {
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
        let order = Recorder<String>()
        let background = BackgroundGuard { { order.add("queue is empty") } }
        try await background.withGPU {}
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
        let order = Recorder<String>()
        let background = BackgroundGuard { { order.add("queue is empty") } }
        try await background.withGPU {}
        try await background.begin()

        XCTAssertFalse(background.close(within: 0))

        XCTAssertEqual(
            order.entries, [], "the guard does not wait for the queue, which could take as long")
        background.end()
        XCTAssertEqual(
            order.entries, ["queue is empty"], "the step waits for the work that it queued")
    }

    func testAStepThatWaitsCanBeCancelled() async throws {
        let background = BackgroundGuard()
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
        let names = ["background", "foreground", "inactive", "active"].map {
            Notification.Name("h2o.\($0)")
        }
        let background = BackgroundGuard()
        background.follow(
            BackgroundGuard.Notifications(
                background: names[0], foreground: names[1], inactive: names[2], active: names[3]))
        func post(_ index: Int) {
            NotificationCenter.default.post(name: names[index], object: nil)
        }
        for opening in [1, 3] {
            post(0)
            XCTAssertTrue(background.isClosed)
            post(opening)
            XCTAssertFalse(background.isClosed)
        }
    }

    func testNoPartOfAPromptIsReadWhileTheAppIsAboutToLeave() async throws {
        var fixture = try SessionFixture()
        fixture.promptChunk = 8
        let session = fixture.makeSession()
        let prompt = String(repeating: "a", count: 40)
        let background = fixture.background
        let calls = Recorder<String>()
        fixture.model.onCall = {
            calls.add("call")
            if calls.entries.count == 3 { background.deactivate() }
        }

        let reply = Task { try await session.respond(to: prompt) }
        while calls.entries.count < 3 { await Task.yield() }
        for _ in 0 ..< 500 { await Task.yield() }
        XCTAssertEqual(calls.entries.count, 3, "the chunk that has begun is completed")
        XCTAssertFalse(background.isClosed)
        background.activate()

        let text = try await reply.value.content
        let undisturbed = try SessionFixture.reading(8).makeSession()
        let expected = try await undisturbed.respond(to: prompt).content
        XCTAssertEqual(text, expected)
    }

    func testWorkGoesOnInTheBackgroundAsLongAsItIsAllowed() async throws {
        let background = BackgroundGuard()
        var end: (() -> Void)? = background.allowInBackground()
        XCTAssertTrue(background.close())
        XCTAssertFalse(background.isClosed)
        try await background.withGPU {}
        end?()
        XCTAssertTrue(background.isClosed)

        end = background.allowInBackground()
        XCTAssertFalse(background.isClosed, "the permission also opens the guard in the background")
        end = nil
        XCTAssertTrue(background.isClosed, "a permission that nothing holds has ended")
        background.open()
        background.allowInBackground()()
        XCTAssertFalse(background.isClosed, "the foreground needs no permission")
    }

    func testAStepInTheBackgroundCanBeRefused() async throws {
        let background = BackgroundGuard(isClosed: true)
        background.refusesInBackground = true
        await assertThrows(try await background.withGPU {}) {
            XCTAssertTrue($0 is InBackgroundError)
        }
        var fixture = try SessionFixture()
        fixture.background = background
        let session = fixture.makeSession()
        await assertThrows(try await session.respond(to: "a")) {
            XCTAssertTrue($0 is InBackgroundError)
        }
        background.open()
        try await background.withGPU {}
        _ = try await session.respond(to: "a")
    }

    func testClosingWaitsForTheStreamsOfTheThreadsThatWorked() async throws {
        let (asked, waited) = (Recorder<String>(), Recorder<String>())
        let background = BackgroundGuard(waitForStream: {
            let thread = "\(ObjectIdentifier(Thread.current))"
            asked.add(thread)
            return { waited.add(thread) }
        })
        // Each model computes on its own thread.
        for _ in 1 ... 2 {
            var fixture = try SessionFixture()
            fixture.background = background
            _ = try await fixture.makeSession().respond(to: "hi")
        }
        let before = waited.entries.count

        XCTAssertTrue(background.close())

        XCTAssertEqual(asked.entries.count, 2, "each thread is asked for its stream once")
        XCTAssertEqual(Set(asked.entries).count, 2)
        XCTAssertEqual(Set(waited.entries.dropFirst(before)), Set(asked.entries))
        XCTAssertFalse(asked.entries.contains("\(ObjectIdentifier(Thread.current))"))
    }

    func testAModelsThreadHasMoreThanTheStackOfAppsThreads() async throws {
        let size = try await SessionFixture().makeModel().stackSize
        XCTAssertEqual(size, ThreadExecutor.stackSize)
        XCTAssertGreaterThan(size, 512 << 10)
    }
}

extension H2OModel {
    fileprivate var stackSize: Int { Thread.current.stackSize }
}
