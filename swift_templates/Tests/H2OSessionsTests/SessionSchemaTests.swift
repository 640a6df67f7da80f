import H2OTestModels
import XCTest

@testable import H2OSessions

final class SessionSchemaTests: XCTestCase {
    private func options(_ schema: String = "{}", maxTokens: Int? = 12) throws -> H2OSession.Options
    {
        H2OSession.Options(
            sampling: .greedy, maxTokens: maxTokens, schema: try H2OSchema(schema))
    }

    func testAReplyHasTheFormOfItsSchemaWhateverTheModelWants() async throws {
        let (fixture, session) = try makeSession(["true", "null"])
        fixture.model.script = TestTokenizer().tokens(of: "nothing")

        let response = try await session.respond(to: "is it so?", options: options())

        XCTAssertEqual(response.content, "null")
        XCTAssertEqual(response.usage.stop, .endOfTurn)
        XCTAssertEqual(response.usage.generatedTokens, 5)
        assertEqual(await session.transcript, [.user("is it so?"), .assistant("null")])
    }

    func testTheNextTurnGoesOnWithTheSameCaches() async throws {
        let (fixture, session) = try makeSession(["true", "false"])
        let first = try await session.respond(to: "one", options: options())
        XCTAssertTrue(["true", "false"].contains(first.content))
        let calls = fixture.model.calls.count
        fixture.model.script = [5, EchoModel.stop]

        let second = try await session.respond(to: "two")

        XCTAssertEqual(second.content, "a")
        XCTAssertEqual(fixture.model.readTexts[calls ..< calls + 2].joined(), "\n<u:two|\n<a:")
    }

    func testReadingAheadMakesTheGrammar() async throws {
        let grammars = Recorder<Void>()
        let (_, session) = try makeSession(options: options()) {
            grammars.add(())
            return Self.grammar(["null"])
        }

        try await session.prewarm()

        XCTAssertEqual(grammars.entries.count, 1)
        assertEqual(try await session.respond(to: "one").content, "null")
        XCTAssertEqual(grammars.entries.count, 1)
    }

    func testAReplyThatDoesNotEndIsAnErrorAndChangesNothing() async throws {
        let (_, session) = try makeSession(["false"])
        for most in [1, 5] {
            await assertThrows(
                try await session.respond(to: "one", options: options(maxTokens: most)),
                H2OSessionError.replyTooLong(atMost: most))
        }
        assertEqual(await session.transcript, [])
        assertEqual(
            try await session.respond(to: "one", options: options(maxTokens: 6)).content, "false")
    }

    func testAReplyThatTheEngineAllowedAgainstTheSchemaIsAnErrorAndChangesNothing() async throws {
        let (_, session) = try makeSession(["null"])
        await assertThrows(
            try await session.respond(
                to: "one", options: options(#"{"type": "boolean"}"#)),
            H2OSessionError.replyBreaksSchema(place: "/type"))
        assertEqual(await session.transcript, [])
        assertEqual(try await session.respond(to: "one", options: options()).content, "null")
    }

    func testAGrammarThatFailsEndsTheReplyWithItsReason() async throws {
        let (_, session) = try makeSession { FailingGrammar() }
        await assertThrows(
            try await session.respond(to: "one", options: options()),
            H2OSessionError.invalidSchema(.refused(reason: "outOfOrder")))
    }

    func testWithoutALimitThereIsRoomForTheShortestReply() throws {
        let long = try H2OSchema(#"{"type": "array", "items": {"minLength": 98}, "minItems": 10}"#)
        XCTAssertEqual(long.roomForReply, 512 + 2 * (2 + 10 * 101))
    }

    private static func grammar(_ texts: [String]) -> any TokenGrammar {
        ScriptedGrammar(texts, letters: TestTokenizer().letters, end: EchoModel.stop)
    }

    private func makeSession(_ texts: [String]) throws -> (SessionFixture, H2OSession) {
        try makeSession { Self.grammar(texts) }
    }

    private func makeSession(
        options: H2OSession.Options = .init(sampling: .greedy, maxTokens: 12),
        _ compile: @escaping () -> any TokenGrammar
    ) throws -> (SessionFixture, H2OSession) {
        var fixture = try SessionFixture()
        fixture.maxTokens = 12
        let model = fixture.makeModel()
        model.loaded.grammars = SchemaGrammars(
            tokenizer: TestTokenizer(), endOfTurn: EchoModel.stop
        ) { _ in compile() }
        return (fixture, model.makeSession(options: options))
    }
}

/// A grammar that allows all tokens, and fails when it must accept one.
private final class FailingGrammar: TokenGrammar {
    private enum Problem: Error { case outOfOrder }

    func allowed() -> [UInt32]? { nil }

    func accept(_ token: Int) throws { throw Problem.outOfOrder }

    func restart() {}
}
