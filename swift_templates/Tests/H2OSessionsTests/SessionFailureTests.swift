import Foundation
import H2OKit
import H2OSessions
import H2OTestModels
import MLX
import XCTest

/// Tests errors of the computation, and calls to a session that is busy.
final class SessionFailureTests: XCTestCase {
    /// Lets one call of the model fail, as MLX does if there is too little memory.
    private func failOnce(_ fixture: SessionFixture, after calls: Int) {
        let model = fixture.model
        let first = model.calls.count + calls
        model.onCall = {
            guard model.calls.count == first else { return }
            model.onCall = nil
            eval([MLXArray([Float(1), 2]) + MLXArray([Float(1), 2, 3])])
        }
    }

    func testAnErrorOfTheComputationDoesNotLoseTheConversation() async throws {
        for failing in [0, 3] {
            let (fixture, twin) = (try SessionFixture(), try SessionFixture())
            let (session, undisturbed) = (fixture.makeSession(), twin.makeSession())
            for session in [session, undisturbed] { _ = try await session.respond(to: "one") }
            let before = await session.transcript
            failOnce(fixture, after: failing)
            await assertThrows(try await session.respond(to: "two")) {
                XCTAssertTrue($0 is MLXError, "\($0)")
            }
            assertEqual(await session.transcript, before)
            let calls = fixture.model.calls.count

            let reply = try await session.respond(to: "two")

            let expected = try await undisturbed.respond(to: "two")
            XCTAssertEqual(reply.content, expected.content)
            XCTAssertEqual(reply.usage.readTokens, expected.usage.readTokens)
            XCTAssertEqual(fixture.model.calls[calls].count, reply.usage.readTokens - 1)
        }
    }

    func testSamplingThatChoosesNoTokenIsRefusedByItsField() async throws {
        let fixture = try SessionFixture()
        let session = fixture.makeSession()
        let wrong: [(String, H2OSampling)] = [
            ("temperature is -1.0, but must be 0.0 or more.", H2OSampling(temperature: -1)),
            ("temperature is nan, but must be 0.0 or more.", H2OSampling(temperature: .nan)),
            ("temperature is inf, but must be 0.0 or more.", H2OSampling(temperature: .infinity)),
            ("topP is 1.5, but must be 0.0 or more and at most 1.0.", H2OSampling(topP: 1.5)),
            ("topK is -1.0, but must be 0.0 or more.", H2OSampling(topK: -1)),
            ("minP is -0.5, but must be 0.0 or more and at most 1.0.", H2OSampling(minP: -0.5)),
            (
                "repetitionPenalty is -2.0, but must be 0.0 or more.",
                H2OSampling(repetitionPenalty: -2)
            ),
        ]
        for (problem, sampling) in wrong {
            let options = H2OSession.Options(sampling: sampling)
            await assertThrows(try await session.respond(to: "one", options: options)) {
                XCTAssertEqual(
                    $0.localizedDescription,
                    problem + " Set it to an allowed value, or to nil for the model's own value.")
            }
        }
        XCTAssertTrue(fixture.model.calls.isEmpty)
        assertEqual(await session.transcript, [])

        let allowed = H2OSampling(
            temperature: 2, topP: 0, topK: 0, minP: 1, repetitionPenalty: 0)
        _ = try await session.respond(
            to: "one", options: H2OSession.Options(sampling: allowed, maxTokens: 1))
    }

    func testAHotDeviceAndLowPowerModeAreErrorsBeforeAnythingIsRead() async throws {
        let (heat, saving) = (Recorder<Void>(), Recorder<Void>())
        var fixture = try SessionFixture()
        // Each condition holds once.
        fixture.conditions = DeviceConditions(
            thermalState: { heat.add(()) == 0 ? .critical : .nominal },
            isLowPower: { saving.add(()) == 0 })
        let session = fixture.makeSession()
        let waiting = H2OSession.Options(
            sampling: .greedy, maxTokens: 6, refusesInLowPowerMode: true)
        await assertThrows(
            try await session.respond(to: "one", options: waiting), H2OSessionError.tooHot)
        await assertThrows(
            try await session.respond(to: "one", options: waiting), H2OSessionError.lowPowerMode)
        XCTAssertTrue(fixture.model.calls.isEmpty)
        assertEqual(await session.transcript, [])
        _ = try await session.respond(to: "one", options: waiting)
        _ = try await session.respond(to: "two")
        XCTAssertEqual(saving.entries.count, 2, "only requests that refuse it ask")
    }

    func testAFullDiskAndALockedDeviceAreFoundInTheSystemsErrors() throws {
        func posix(_ code: Int32) -> NSError {
            NSError(domain: NSPOSIXErrorDomain, code: Int(code))
        }
        let file = URL(filePath: "/a")
        let unknown = CocoaError(.fileReadUnknown, userInfo: [NSUnderlyingErrorKey: posix(EPERM)])
        let cases: [(any Error, H2OCacheError?)] = [
            (posix(ENOSPC), .noSpace(file)), (posix(EDQUOT), .noSpace(file)),
            (CocoaError(.fileWriteOutOfSpace), .noSpace(file)), (unknown, .locked(file)),
            (posix(EACCES), nil), (CocoaError(.fileReadNoSuchFile), nil),
            (H2OSessionError.busy, nil),
        ]
        for (error, expected) in cases {
            XCTAssertEqual(H2OCacheError(fileError: error, file), expected, "\(error)")
        }
        XCTAssertThrowsError(try RegularFile.data(URL(filePath: "/none/at/all"))) { error in
            let cause = (error as NSError).userInfo[NSUnderlyingErrorKey] as? NSError
            XCTAssertEqual(cause?.code, Int(ENOENT))
        }
    }

    func testWhatIsAskedWhileASessionIsResetBeginsANewConversation() async throws {
        let fixture = try SessionFixture()
        let session = fixture.makeSession()
        _ = try await session.respond(to: "one")
        fixture.background.close()
        let pending = session.streamResponse(to: "two")
        let resetting = Task { await session.reset() }
        while await session.transcript.count > 0 { await Task.yield() }
        let replying = Task { try await session.respond(to: "three") }
        fixture.background.open()

        let reply = try await replying.value
        await resetting.value
        for try await _ in pending {}

        assertEqual(await session.transcript, [.user("three"), reply.message])
        let fresh = try SessionFixture().makeSession()
        assertEqual(try await fresh.respond(to: "three").content, reply.content)
    }

    func testNothingIsQueuedWhenAReplyHasEnded() async throws {
        let drained = Recorder<Void>()
        var fixture = try SessionFixture()
        fixture.background = BackgroundGuard { { drained.add(()) } }
        fixture.maxTokens = 100
        let session = fixture.makeSession()

        fixture.model.script = [5, 1]
        _ = try await session.respond(to: "one")
        XCTAssertEqual(drained.entries.count, 1)

        for try await part in session.streamResponse(to: "two") where part.text != nil {
            await session.cancel()
            XCTAssertEqual(drained.entries.count, 2, "nothing is queued when cancel() returns")
        }
    }

    func testTheRepliesOfAModelFollowEachOther() async throws {
        let fixture = try SessionFixture()
        let model = fixture.makeModel()
        let options = H2OSession.Options(sampling: .greedy, maxTokens: 6)
        let sessions = (0 ..< 3).map { _ in model.makeSession(options: options) }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for (session, prompt) in zip(sessions, ["a", "bb", "ccc"]) {
                group.addTask { _ = try await session.respond(to: prompt) }
            }
            try await group.waitForAll()
        }

        // Each reply has two calls for the prompt, the second for its last token, and 6 calls for the
        // tokens of the reply.
        let sizes = fixture.model.calls.map(\.count)
        XCTAssertEqual(sizes.count, 3 * 8)
        for reply in 0 ..< 3 {
            XCTAssertGreaterThan(sizes[reply * 8], 1)
            XCTAssertEqual(sizes[reply * 8 + 1 ..< reply * 8 + 8], [1, 1, 1, 1, 1, 1, 1])
        }
    }

    func testAReplyThatWaitsForItsTurnCanBeCanceled() async throws {
        let fixture = try SessionFixture()
        let model = fixture.makeModel()
        let (first, second) = (model.makeSession(), model.makeSession())
        fixture.background.close()
        let running = first.streamResponse(to: "one")
        let waiting = Task { try await second.respond(to: "two") }
        for _ in 0 ..< 100 { await Task.yield() }
        waiting.cancel()

        await assertThrows(try await waiting.value) { XCTAssertTrue($0 is CancellationError) }

        assertEqual(await second.transcript, [])
        await first.cancel()
        for try await _ in running {}
    }
}
