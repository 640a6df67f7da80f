import H2OGrammar
import H2OTestModels
import XCTest

@testable import H2OSessions

final class SessionSchemaTests: XCTestCase {
    func testAReplyHasTheFormOfItsSchemaWhateverTheModelWants() async throws {
        let (fixture, session) = try makeSession()
        fixture.model.script = TestTokenizer().tokens(of: "nothing")
        let options = H2OSession.Options(
            sampling: .greedy, maxTokens: 12, schema: try H2OSchema(#"{"enum": [true, null]}"#))

        let response = try await session.respond(to: "is it so?", options: options)

        XCTAssertEqual(response.text, "null")
        XCTAssertEqual(response.usage.stop, .endOfTurn)
        XCTAssertEqual(response.usage.generatedTokens, 5)
        assertEqual(await session.messages, [.user("is it so?"), .assistant("null")])
    }

    func testTheNextTurnGoesOnWithTheSameCaches() async throws {
        let (fixture, session) = try makeSession()
        let schema = try H2OSchema(#"{"type": "boolean"}"#)
        let options = H2OSession.Options(sampling: .greedy, maxTokens: 12, schema: schema)
        let first = try await session.respond(to: "one", options: options)
        XCTAssertTrue(["true", "false"].contains(first.text))
        let calls = fixture.model.calls.count
        fixture.model.script = [5, EchoModel.stop]

        let second = try await session.respond(to: "two")

        XCTAssertEqual(second.text, "a")
        XCTAssertEqual(fixture.model.readTexts[calls ..< calls + 2].joined(), "\n<u:two|\n<a:")
    }

    func testReadingAheadMakesTheGrammar() async throws {
        let grammars = Recorder<Void>()
        let (fixture, _) = try makeSession()
        let model = fixture.makeModel()
        model.loaded.grammars = SchemaGrammars(
            tokenizer: TestTokenizer(), endOfTurn: EchoModel.stop
        ) {
            grammars.add(())
            return Self.grammar($0)
        }
        let schema = try H2OSchema(#"{"const": null}"#)
        let session = model.makeSession(options: .init(maxTokens: 12, schema: schema))

        try await session.prewarm()

        XCTAssertEqual(grammars.entries.count, 1)
        assertEqual(try await session.respond(to: "one").text, "null")
        XCTAssertEqual(grammars.entries.count, 1)
    }

    func testARoomThatIsTooSmallIsRefusedAndChangesNothing() async throws {
        let (_, session) = try makeSession()
        var options = H2OSession.Options(schema: try H2OSchema(#"{"const": false}"#))
        for most in [1, 5] {
            options.maxTokens = most
            await assertThrows(
                try await session.respond(to: "one", options: options),
                H2OSessionError.noRoomForSchema(tokens: 6, atMost: most))
        }
        assertEqual(await session.messages, [])
        options.maxTokens = 6
        assertEqual(try await session.respond(to: "one", options: options).text, "false")
    }

    func testAGrammarThatFailsEndsTheReplyWithItsReason() async throws {
        let (_, session) = try makeSession { _ in FailingGrammar() }
        let options = H2OSession.Options(schema: try H2OSchema("{}"))
        await assertThrows(
            try await session.respond(to: "one", options: options),
            H2OSessionError.invalidSchema(.refused(reason: "out of order")))
    }

    private static func grammar(_ text: String) -> any TokenGrammar {
        ReferenceGrammar(text, letters: TestTokenizer().letters, end: EchoModel.stop)
    }

    private func makeSession(
        _ compile: @escaping (String) -> any TokenGrammar = grammar
    ) throws -> (SessionFixture, H2OSession) {
        var fixture = try SessionFixture()
        fixture.maxTokens = 12
        let model = fixture.makeModel()
        model.loaded.grammars = SchemaGrammars(
            tokenizer: TestTokenizer(), endOfTurn: EchoModel.stop, compile: compile)
        return (fixture, model.makeSession(options: .init(sampling: .greedy, maxTokens: 12)))
    }
}

/// A grammar that allows all tokens, and fails when it must accept one.
private final class FailingGrammar: TokenGrammar {
    func allowed() -> [UInt32]? { nil }

    func accept(_ token: Int) throws { throw TokenGrammarError.failed("out of order") }

    let count = 0

    func goBack(to count: Int) {}
}
