import Foundation
import H2OKit
import H2OTestModels
import MLX
import MLXLMCommon
import XCTest

@testable import H2OSessions

/// Tests that one prompt gives one reply: whatever happens beside a conversation, its caches are
/// made by the same steps. The model's tokens depend on all rows in its caches, so another cut gives
/// another reply.
final class SameStepsTests: FolderTestCase {
    /// What follows from a conversation after each turn.
    private struct Outcome: Equatable {
        let trace: H2OTrace
        let kept: KeptPositions
        let messages: [H2OMessage]
    }

    private typealias Change = (inout SessionFixture) -> Void
    private typealias Disturbance = (H2OSession, SessionFixture) async throws -> H2OSession

    private let long = String(repeating: "tell me more of it. ", count: 4)

    private func fixture(_ change: Change = { _ in }) throws -> SessionFixture {
        var fixture = try SessionFixture(maxSize: 40)
        fixture.instructions = "be brief"
        fixture.promptChunk = 7
        change(&fixture)
        return fixture
    }

    /// Plays a conversation with an edit and two regenerated replies.
    ///
    /// - Parameter disturb: runs before each turn; the conversation goes on in its result
    private func play(
        _ change: Change, disturb: Disturbance
    ) async throws -> [Outcome] {
        let fixture = try fixture(change)
        var session = fixture.makeSession()
        var outcomes = [Outcome]()
        func note() async {
            outcomes.append(
                Outcome(
                    trace: await session.trace, kept: await session.keptPositions,
                    messages: await session.transcript))
        }
        for prompt in [long, "two", long] {
            session = try await disturb(session, fixture)
            _ = try await session.respond(to: prompt)
            await note()
        }
        session = try await disturb(session, fixture)
        for try await _ in session.regenerate() {}
        await note()
        try await session.keep(3)
        session = try await disturb(session, fixture)
        _ = try await session.respond(to: "other")
        await note()
        try await session.keep(1)
        session = try await disturb(session, fixture)
        _ = try await session.respond(to: "again " + long)
        await note()
        return outcomes
    }

    private func play(_ change: Change = { _ in }) async throws -> [Outcome] {
        try await play(change) { session, _ in session }
    }

    private func disturbed(by disturb: Disturbance) async throws -> [Outcome] {
        try await play({ _ in }, disturb: disturb)
    }

    private func assertSame(
        _ name: String, _ outcomes: [Outcome], _ expected: [Outcome], line: UInt = #line
    ) {
        XCTAssertEqual(outcomes.count, expected.count)
        for (turn, (ours, theirs)) in zip(outcomes, expected).enumerated() {
            XCTAssertEqual(ours.trace, theirs.trace, "\(name): \(turn)", line: line)
            XCTAssertEqual(ours.kept, theirs.kept, "\(name): \(turn)", line: line)
            XCTAssertEqual(ours.messages, theirs.messages, "\(name): \(turn)", line: line)
        }
    }

    func testAFirstPromptIsReadAsMlxLmReadsItAfterThePinnedTokens() async throws {
        let outcomes = try await play()
        let reads = outcomes[0].trace.steps.compactMap { step in
            if case .read(let ids) = step { ids.count } else { nil }
        }
        let (system, prompt) = ("<s:be brief|\n<u:".count, "\(long)|\n<a:".count)
        XCTAssertEqual(
            reads,
            PromptCuts(chunk: 7).lengths(from: 0, to: system + 1).dropLast()
                + PromptCuts(chunk: 7).lengths(from: 0, to: prompt))
        XCTAssertEqual(reads.last, 1)
        XCTAssertGreaterThan(outcomes[0].kept.count, 40, "rows were evicted")
        XCTAssertEqual(outcomes[2], outcomes[3], "the sampling is greedy")
    }

    func testASlowClockAndMissingSnapshotsChangeNothing() async throws {
        let expected = try await play()
        let cases: [(String, Change)] = [
            (
                "slow clock",
                { fixture in
                    let model = fixture.model
                    fixture.elapsed = { .seconds(3 * model.calls.count) }
                }
            ),
            ("no snapshots", { $0.snapshots = .none }),
            ("snapshots in files", { $0.snapshots = H2OSnapshotLimits(memory: 0) }),
            ("one snapshot", { $0.snapshots = H2OSnapshotLimits(memory: 1, files: 0) }),
            ("no free memory", { $0.free = 0 }),
        ]
        for (name, change) in cases {
            assertSame(name, try await play(change), expected)
        }
    }

    func testPrewarmingWholeOrInPartChangesNothing() async throws {
        let expected = try await play()
        let whole = try await disturbed { session, _ in
            try await session.prewarm()
            return session
        }
        assertSame("prewarmed", whole, expected)
        for calls in 1 ... 3 {
            let part = try await disturbed { session, fixture in
                guard await session.tokensSeen == 0 else { return session }
                let (steps, step) = AsyncStream<Void>.makeStream()
                fixture.model.onCall = { [model = fixture.model] in
                    if model.calls.count == calls - 1 { step.yield() }
                }
                let warming = Task { try await session.prewarm() }
                for await _ in steps { break }
                warming.cancel()
                _ = try? await warming.value
                fixture.model.onCall = nil
                return session
            }
            assertSame("prewarmed in part", part, expected)
        }
    }

    func testMessagesThatWereSetAreReadAlikeWithAndWithoutPrewarming() async throws {
        var traces = [H2OTrace]()
        for warms in [false, true] {
            let session = try fixture().makeSession()
            try await session.setTranscript(
                [.system("be brief"), .user(long), .assistant("fine"), .user("so"), .assistant("b")])
            if warms { try await session.prewarm() }
            let usage = try await session.respond(to: long).usage
            XCTAssertEqual(usage.cachedTokens > long.count, warms)
            traces.append(await session.trace)
        }
        XCTAssertEqual(traces[0], traces[1])
    }

    func testAWarningTheBackgroundAndAFailureChangeNothing() async throws {
        let expected = try await play()
        let warned = try await disturbed { session, _ in
            await session.model.releaseMemory()
            return session
        }
        assertSame("memory warning", warned, expected)
        let background = try await disturbed { session, fixture in
            fixture.background.close()
            await session.model.releaseMemory()
            fixture.background.open()
            return session
        }
        assertSame("background", background, expected)
        let forked = try await disturbed { session, _ in try await session.fork() }
        assertSame("forked", forked, expected)
        let failed = try await disturbed { session, fixture in
            let model = fixture.model
            let first = model.calls.count + 1
            model.onCall = {
                guard model.calls.count == first else { return }
                model.onCall = nil
                eval([MLXArray([Float(1), 2]) + MLXArray([Float(1), 2, 3])])
            }
            await assertThrows(try await session.respond(to: "fails")) { _ in }
            return session
        }
        assertSame("failed", failed, expected)
    }

    func testASavedAndRestoredConversationHasTheSameStepsInEveryLaterTurn() async throws {
        let expected = try await play()
        for limits in [H2OSnapshotLimits(), .none] {
            let restored = try await play({ $0.snapshots = limits }) { session, fixture in
                guard await session.tokensSeen > 0 else { return session }
                try await session.save(to: self.folder)
                return try await H2OSession.restore(
                    from: self.folder, model: session.model,
                    options: session.options
                ).keeping(await session.transcript)
            }
            assertSame("restored", restored, expected)
        }
    }

    func testThoughtsAreDroppedByTheSameStepsWithAndWithoutSnapshots() async throws {
        var all = [[H2OTrace]]()
        for (limits, isClosed) in [
            (H2OSnapshotLimits(), false), (.none, false), (H2OSnapshotLimits(memory: 0), false),
            (H2OSnapshotLimits(), true),
        ] {
            for template in [ChatTemplate.qwen3, .qwen3Thinking] {
                var fixture = try SessionFixture(template, maxSize: 64)
                fixture.snapshots = limits
                fixture.promptChunk = 16
                fixture.model.replies = [
                    "<think>\nA greeting.\n</think>\n\nHello.", "<think>\nAgain.\n</think>\n\nYes.",
                ]
                let session = fixture.makeModel().makeSession(instructions: "Be brief.")
                var traces = [H2OTrace]()
                for prompt in ["Hi there", "Are you sure of it?"] {
                    for try await part in session.streamResponse(to: prompt) {
                        if isClosed, part.usage != nil { fixture.background.close() }
                    }
                    fixture.background.open()
                    traces.append(await session.trace)
                }
                all.append(traces)
            }
        }
        for index in 2 ..< all.count {
            XCTAssertEqual(all[index], all[index % 2])
            XCTAssertFalse(all[index][1].ids.isEmpty)
        }
    }

    func testAReplyThatWasCutOffGoesOnWithoutReadingAndAsIfItHadNot() async throws {
        let whole = try fixture { $0.maxTokens = 12 }.makeSession()
        let expected = try await whole.respond(to: long)
        for restores in [false, true] {
            let fixture = try fixture()
            var session = fixture.makeSession()
            _ = try await session.respond(to: long)
            if restores {
                try await session.save(to: folder)
                session = try await H2OSession.restore(
                    from: folder, model: fixture.makeModel(), options: session.options)
            }
            let calls = fixture.model.calls.count
            var usage = H2OSession.Usage()
            for try await part in session.continueResponse() { usage = part.usage ?? usage }

            assertEqual(await session.transcript.last?.text, expected.content)
            assertEqual(await session.trace, await whole.trace)
            if !restores {
                XCTAssertEqual(fixture.model.calls.count - calls, 6, "a call for each new token")
                XCTAssertEqual(usage.readTokens, 0)
            }
            XCTAssertEqual(usage.promptTokens, usage.cachedTokens + usage.readTokens)
        }
    }

    func testAReplyThatWasCancelledGoesOnWhereverItWas() async throws {
        let whole = try fixture { $0.maxTokens = 12 }.makeSession()
        let expected = try await whole.respond(to: long)
        for calls in [2, 9, 17, 19, 21] {
            let fixture = try fixture { $0.maxTokens = 12 }
            let session = fixture.makeSession()
            let (steps, step) = AsyncStream<Void>.makeStream()
            fixture.model.onCall = { [model = fixture.model] in
                if model.calls.count == calls { step.yield() }
            }
            let reply = session.streamResponse(to: long)
            for await _ in steps { break }
            await session.cancel()
            for try await _ in reply {}
            fixture.model.onCall = nil
            let answer = await session.transcript.last { $0.role == .assistant }
            let said = answer?.text.count ?? 0
            let options = H2OSession.Options(sampling: .greedy, maxTokens: 12 - said)
            if said == 0 {
                _ = try await session.respond(to: long, options: options)
            } else if said < 12 {
                for try await _ in session.continueResponse(options: options) {}
            }

            assertEqual(await session.transcript.last?.text, expected.content)
            assertEqual(await session.trace, await whole.trace, "\(calls)")
        }
    }

    func testATraceIsReadableJSON() throws {
        let trace = H2OTrace(steps: [.read([1, 2]), .generated(3)])
        let data = try JSONEncoder().encode(trace)
        XCTAssertEqual(
            String(decoding: data, as: UTF8.self),
            #"{"steps":[{"read":[1,2]},{"generated":3}]}"#)
        XCTAssertEqual(try JSONDecoder().decode(H2OTrace.self, from: data), trace)
        XCTAssertEqual(trace.ids, [1, 2, 3])
    }
}

extension H2OSession {
    fileprivate func keeping(_ messages: [H2OMessage]) async throws -> H2OSession {
        try await setTranscript(messages)
        return self
    }
}
