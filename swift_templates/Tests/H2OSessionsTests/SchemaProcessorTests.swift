import H2OTestModels
import MLX
import MLXLMCommon
import XCTest

@testable import H2OSessions

/// Tests replies of made-up models in which a token is a character.
final class SchemaProcessorTests: XCTestCase {
    private static let letters = "| \"{}[]:,.-0123456789abcdeflnrstuxy".map(String.init)
    private static let tokenizer = TestTokenizer(letters: letters.map { Character($0) })
    private static let end = 0

    private func schema() throws -> H2OSchema { try H2OSchema(#"{"type": "array"}"#) }

    func testAModelThatWantsSomethingElseGivesOneOfTheTexts() throws {
        // The model always prefers "y"; if "y" is not allowed, it prefers the token with the
        // highest number.
        let reply = try reply(of: [#"{"a":12,"b":"x"}"#, #"{"a":13,"b":"y"}"#], atMost: nil) {
            $0 == "y" ? 2 : 0
        }
        XCTAssertEqual(reply, #"{"a":13,"b":"y"}"#)
    }

    func testAReplyEndsWhereItMustAndNotBefore() throws {
        XCTAssertEqual(try reply(of: ["[1,2]"], atMost: nil) { $0 == "|" ? 1 : 0 }, "[1,2]")
    }

    /// The stand-in keeps two tokens, of which the processor makes six, in reserve.
    func testAReplyThatWouldGoOnIsClosedInTime() throws {
        let texts = (0 ..< 30).map { "[\"\(String(repeating: "x", count: $0))\"]" }
        let liking: (String) -> Float = { $0 == "x" ? 2 : 0 }
        XCTAssertEqual(try reply(of: texts, atMost: nil, liking), texts[29])
        XCTAssertEqual(try reply(of: texts, atMost: 14, liking), texts[6])
        XCTAssertEqual(try reply(of: texts, atMost: 24, liking), texts[16])
    }

    /// In an object, the bias toward digits alone would prefer them to a comma.
    func testANumberIsClosedByWhatFollowsIt() throws {
        for next in [",2]", "]"] {
            let texts = (1 ..< 30).map { "[\(String(repeating: "1", count: $0))\(next)" }
            let reply = try reply(of: texts, atMost: 9) { $0 == "1" ? 2 : 0 }
            XCTAssertEqual(reply, "[11" + next)
        }
    }

    func testWhiteSpaceGivesWayAfterThreeTokens() throws {
        let texts = (0 ..< 9).map { "[\(String(repeating: " ", count: $0))]" }
        XCTAssertEqual(try reply(of: texts, atMost: nil) { $0 == " " ? 2 : 0 }, "[   ]")
    }

    func testAGrammarThatIsAskedForAgainBeginsAgain() throws {
        let grammars = grammars(of: ["12"])
        var first = try grammars.processor(for: schema(), atMost: 8)
        first.didSample(token: token("1"))
        XCTAssertEqual(allowed(first), ["2"])
        XCTAssertEqual(allowed(try grammars.processor(for: schema(), atMost: 8)), ["1"])
    }

    func testTokensThatTheGrammarDoesNotKnowAreNotChosen() throws {
        let processor = try grammars(of: ["null"]).processor(for: schema(), atMost: nil)
        let count = Self.letters.count + 3
        let logits = MLXArray([Float](repeating: 0, count: count), [1, count])
        let values = processor.process(logits: logits).asArray(Float.self)
        XCTAssertEqual(values.count, count)
        XCTAssertEqual(
            values.indices.filter { values[$0] == 0 }, [Self.letters.firstIndex(of: "n")])
    }

    func testTheGrammarsOfTheLastSchemasAreKept() throws {
        var count = 0
        let grammars = grammars(of: ["1"]) { count += 1 }
        let schemas = try (0 ..< 9).map { try H2OSchema(#"{"const": \#($0)}"#) }
        for schema in schemas + [schemas[8], schemas[1]] {
            _ = try grammars.processor(for: schema, atMost: nil)
        }
        XCTAssertEqual(count, 9)
        _ = try grammars.processor(for: schemas[0], atMost: nil)
        XCTAssertEqual(count, 10)
    }

    func testTheEngineEndsRepliesInTime() throws {
        try XCTSkipUnless(hasGrammarEngine, "The stand-in for mlx-swift-lm has no engine.")
        let grammars = SchemaGrammars(
            tokenizer: Self.tokenizer, endOfTurn: Self.end, stops: [Self.end])
        for (schema, liked) in [
            (#"{"items": {"properties": {"a": {"type": "string"}}, "required": ["a"]}}"#, "x"),
            (#"{"properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a", "b"]}"#, "1"),
            (#"{"type": "number"}"#, "7"), ("{}", "["),
        ] {
            let schema = try H2OSchema(schema)
            for most in [60, 200] {
                let processor = try grammars.processor(for: schema, atMost: most)
                let reply = try reply(processor, atMost: most) { $0 == liked ? 2 : 0 }
                XCTAssertNoThrow(try schema.check(reply), reply)
            }
        }
    }

    /// The text of a model that prefers some letters, without the token that ends it.
    private func reply(
        of texts: [String], atMost most: Int?, _ liking: (String) -> Float
    ) throws -> String {
        try reply(
            grammars(of: texts).processor(for: schema(), atMost: most), atMost: most ?? 40, liking)
    }

    private func reply(
        _ processor: SchemaProcessor, atMost most: Int, _ liking: (String) -> Float
    ) throws -> String {
        var (processor, text) = (processor, "")
        let likings = Self.letters.enumerated().map { Float($0) * 0.001 + liking($1) }
        for _ in 0 ..< most {
            let logits = processor.process(logits: MLXArray(likings, [1, likings.count]))
            let token = ArgMaxSampler().sample(logits: logits)
            processor.didSample(token: token)
            XCTAssertNil(processor.failure)
            let letter = Self.letters[Int(token.asArray(Int32.self)[0])]
            if letter == Self.letters[Self.end] { return text }
            text += letter
        }
        XCTFail("the reply did not end: \(text)")
        return text
    }

    private func grammars(
        of texts: [String], _ onCompile: @escaping () -> Void = {}
    ) -> SchemaGrammars {
        SchemaGrammars(tokenizer: Self.tokenizer, endOfTurn: Self.end) { _ in
            onCompile()
            return ScriptedGrammar(texts, letters: Self.letters, end: Self.end)
        }
    }

    private func token(_ letter: String) -> MLXArray {
        MLXArray([Int32(Self.letters.firstIndex(of: letter) ?? 0)])
    }

    private func allowed(_ processor: SchemaProcessor) -> [String] {
        let count = Self.letters.count
        let zeros = MLXArray([Float](repeating: 0, count: count), [1, count])
        let values = processor.process(logits: zeros).asArray(Float.self)
        return values.indices.filter { values[$0] > -.infinity }.map { Self.letters[$0] }
    }
}
