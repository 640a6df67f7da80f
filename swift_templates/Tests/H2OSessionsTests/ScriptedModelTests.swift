import Foundation
import H2OSessions
import XCTest

/// Tests the public stand-in for a model, with only the public interface.
final class ScriptedModelTests: XCTestCase {
    private struct Failure: Error {}

    private let endless = H2OModel.ScriptStep.delay(.seconds(3600))

    private func parts(_ session: H2OSession) async throws -> [H2OSession.Part] {
        var parts = [H2OSession.Part]()
        for try await part in session.streamResponse(to: "hi") { parts.append(part) }
        return parts
    }

    func testItSaysItsScriptInPieces() async throws {
        let model = H2OModel.scripted(
            [.thought("Who? "), .delay(.zero), "Hello there."], ["Bye."], pace: .nanoseconds(1))
        XCTAssertTrue(model.canThink)
        XCTAssertFalse(H2OModel.scripted(["a"]).canThink)
        let session = model.makeSession(instructions: "Be brief.")
        try await session.prewarm()

        let parts = try await parts(session)

        XCTAssertEqual(parts.dropLast(), [.thought("Who? "), .text("Hello "), .text("there.")])
        guard case .usage(let usage)? = parts.last else { return XCTFail("\(parts)") }
        XCTAssertEqual(usage.stop, .endOfTurn)
        XCTAssertEqual([usage.generatedTokens, usage.thoughtTokens, usage.readTokens], [3, 1, 3])
        assertEqual(try await session.fork().respond(to: "more").content, "Bye.")
        assertEqual(
            await session.transcript.dropFirst(),
            [.user("hi"), .assistant("Hello there.", thoughts: "Who? ")])
    }

    func testTheSessionRunsTheToolsThatItCalls() async throws {
        let parameters: JSONValue = .object(["type": .string("object")])
        let clock = try H2OTool(
            name: "clock", description: "Tells the time.", parameters: parameters
        ) { arguments in "\(arguments["city"] ?? .null)" }
        let session = H2OModel.scripted(
            [.toolCall("clock", arguments: ["city": .string("Oslo")]), .toolCall("none")],
            ["Noon."]
        ).makeSession(tools: [clock])

        let reply = try await session.respond(to: "What time is it?")

        XCTAssertEqual(reply.content, "Noon.")
        let outputs = await session.transcript.filter { $0.role == .tool }.map(\.text)
        XCTAssertTrue(outputs[0].contains("Oslo"), "\(outputs)")
        XCTAssertEqual(outputs.dropFirst(), ["There is no tool named none."])
    }

    func testItsErrorsAreThoseOfTheRequest() async throws {
        let session = H2OModel.scripted(["Hel", .error(Failure())], ["Hello."]).makeSession()
        await assertThrows(try await session.respond(to: "a")) { XCTAssertTrue($0 is Failure) }
        assertEqual(await session.transcript, [])
        assertEqual(try await session.respond(to: "a").content, "Hello.")
        await assertThrows(
            try await session.respond(to: "a"), H2OSessionError.scriptEnded(replies: 2))
    }

    func testACanceledReplyKeepsWhatWasSaid() async throws {
        for leaves in [true, false] {
            let session = H2OModel.scripted(["Once upon ", endless], ["Hi."]).makeSession()
            var count = 0
            for try await _ in session.streamResponse(to: "a") {
                count += 1
                guard count == 2 else { continue }
                if leaves { break }
                await session.cancel()
            }
            await session.cancel()
            XCTAssertEqual(count, leaves ? 2 : 3, "the last part is the usage")
            assertEqual(
                await session.transcript, [.user("a"), .assistant("Once upon ", isCutOff: true)])
            assertEqual(try await session.respond(to: "b").content, "Hi.")
        }
    }

    func testACanceledReplyThatSaidNothingLeavesNothing() async throws {
        for cancelsTask in [true, false] {
            let session = H2OModel.scripted([endless]).makeSession()
            let reply = Task { try await session.respond(to: "a") }
            while !session.isResponding { await Task.yield() }
            if cancelsTask { reply.cancel() } else { await session.cancel() }
            await assertThrows(try await reply.value) { XCTAssertTrue($0 is CancellationError) }
            assertEqual(await session.transcript, [])
        }
    }

    func testACancellationBetweenTwoRoundsKeepsTheCallAndIsMarked() async throws {
        let parameters: JSONValue = .object(["type": .string("object")])
        let clock = try H2OTool(
            name: "clock", description: "Tells the time.", parameters: parameters
        ) { _ in
            withUnsafeCurrentTask { $0?.cancel() }
            return "Noon."
        }
        let session = H2OModel.scripted([.toolCall("clock")], ["Hi."]).makeSession(tools: [clock])
        await assertThrows(try await session.respond(to: "When?")) {
            XCTAssertTrue($0 is CancellationError)
        }
        assertEqual(await session.transcript.map(\.role), [.user, .assistant, .tool, .assistant])
        assertEqual(await session.transcript.last?.isCutOff, true)
        assertEqual(try await session.respond(to: "So?").content, "Hi.")
    }

    func testItsRepliesHaveTheLimitsOfARequest() async throws {
        let session = H2OModel.scripted(["one two three"], ["three"], ["true"], ["so"])
            .makeSession()
        let limit = H2OSession.Options(maxTokens: 2)
        assertEqual(try await session.respond(to: "count", options: limit).usage.stop, .length)
        for try await _ in session.continueResponse() {}
        assertEqual(
            await session.transcript, [.user("count"), .assistant("one two three")])

        let yes = H2OSession.Options(schema: try H2OSchema(#"{"const": true}"#))
        assertEqual(try await session.respond(to: "is it?", options: yes).content, "true")
        await assertThrows(
            try await session.respond(to: "is it?", options: yes),
            H2OSessionError.replyBreaksSchema(place: ""))
    }
}
