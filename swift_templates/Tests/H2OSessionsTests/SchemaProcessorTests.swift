import H2OGrammar
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

    func testAModelThatWantsSomethingElseGivesAnInstance() throws {
        let schema = try H2OSchema(
            #"{"properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}, "required":"#
                + #"["a", "b"]}"#)
        // The model always prefers "y"; if "y" is not allowed, it prefers the token with the
        // highest number.
        let reply = try reply(schema, atMost: nil, longest: 40) { $0 == "y" ? 2 : 0 }
        XCTAssertEqual(reply, #"{"a":999999999999999,"b":"y"}"#)
    }

    func testAReplyEndsWhereItMustAndNotBefore() throws {
        let schema = try H2OSchema(#"{"const": [1, 2]}"#)
        XCTAssertEqual(try reply(schema, atMost: nil, longest: 40) { $0 == "|" ? 1 : 0 }, "[1,2]")
    }

    func testAReplyThatWouldGoOnIsClosedInTime() throws {
        let schema = try H2OSchema(
            #"{"items": {"properties": {"a": {"type": "string"}}, "required": ["a"]}}"#)
        for most in [3, 24, 50] {
            let reply = try reply(schema, atMost: most, longest: most) {
                $0 == "x" ? 2 : $0 == "{" ? 1 : 0
            }
            XCTAssertTrue(ReferenceGrammar(schema.grammar).matches(reply), reply)
            XCTAssertGreaterThan(reply.count, most - 22, reply)
        }
    }

    func testAReplyEndsInTimeWhereOneCharacterMakesManyNecessary() throws {
        let needed = (0 ..< 4).map { #""ab\#($0)": {"const": "abcdef"}"# }.joined(separator: ", ")
        let names = (0 ..< 4).map { "\"ab\($0)\"" }.joined(separator: ", ")
        let schema = try H2OSchema(
            #"{"items": {"properties": {\#(needed)}, "required": [\#(names)]}}"#)
        for most in [42, 68] {
            let reply = try reply(schema, atMost: most, longest: most) {
                $0 == "{" ? 2 : $0 == "," ? 1 : 0
            }
            XCTAssertTrue(ReferenceGrammar(schema.grammar).matches(reply), reply)
        }
    }

    func testAGrammarThatIsAskedForAgainBeginsAgain() throws {
        let schema = try H2OSchema(#"{"const": 12}"#)
        let grammars = grammars {}
        var first = try grammars.processor(for: schema, atMost: 8)
        first.didSample(token: token("1"))
        XCTAssertEqual(allowed(first), ["2"])
        XCTAssertEqual(allowed(try grammars.processor(for: schema, atMost: 8)), ["1"])
    }

    func testTokensThatTheGrammarDoesNotKnowAreNotChosen() throws {
        let processor = try processor(H2OSchema(#"{"type": "null"}"#), atMost: nil)
        let count = Self.letters.count + 3
        let logits = MLXArray([Float](repeating: 0, count: count), [1, count])
        let values = processor.process(logits: logits).asArray(Float.self)
        XCTAssertEqual(values.count, count)
        XCTAssertEqual(
            values.indices.filter { values[$0] == 0 }, [Self.letters.firstIndex(of: "n")])
    }

    func testTheGrammarsOfTheLastSchemasAreKept() throws {
        var count = 0
        let grammars = grammars { count += 1 }
        let schemas = try (0 ..< 9).map { try H2OSchema(#"{"const": \#($0)}"#) }
        for schema in schemas + [schemas[8], schemas[1]] {
            _ = try grammars.processor(for: schema, atMost: nil)
        }
        XCTAssertEqual(count, 9)
        _ = try grammars.processor(for: schemas[0], atMost: nil)
        XCTAssertEqual(count, 10)
    }

    func testTheEngineKeepsAlternativesApartThatBeginAlike() throws {
        try XCTSkipUnless(hasGrammarEngine, "The stand-in for mlx-swift-lm has no engine.")
        let schema = try H2OSchema(
            #"{"anyOf": [{"const": "a"}, {"const": "ab"}, {"enum": ["abc", "b"]}, {"maxLength": 1}]}"#
        )
        let engine = try GrammarEngine(tokenizer: Self.tokenizer, endOfTurn: Self.end) { _, _ in
            false
        }
        for (text, next) in [("\"b", "\""), ("\"ab", "\"c"), ("\"1", "\"")] {
            let grammar = try engine.grammar(schema.grammar)
            for letter in Self.tokenizer.encode(text: text, addSpecialTokens: false) {
                try grammar.accept(letter)
            }
            let words = try XCTUnwrap(grammar.allowed())
            let allowed = Self.letters.indices.filter { words[$0 / 32] >> UInt32($0 % 32) & 1 == 1 }
            XCTAssertEqual(allowed.map { Self.letters[$0] }.joined(), next, text)
        }
    }

    /// The text of a model that prefers some letters, without the token that ends it.
    private func reply(
        _ schema: H2OSchema, atMost most: Int?, longest: Int, _ liking: (String) -> Float
    ) throws -> String {
        var processor = try processor(schema, atMost: most)
        var text = ""
        let likings = Self.letters.enumerated().map { Float($0) * 0.001 + liking($1) }
        for _ in 0 ..< longest {
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

    private func processor(_ schema: H2OSchema, atMost most: Int?) throws -> SchemaProcessor {
        try grammars {}.processor(for: schema, atMost: most)
    }

    private func grammars(_ onCompile: @escaping () -> Void) -> SchemaGrammars {
        SchemaGrammars(tokenizer: Self.tokenizer, endOfTurn: Self.end) {
            onCompile()
            return ReferenceGrammar($0, letters: Self.letters, end: Self.end)
        }
    }

    private func token(_ letter: String) -> MLXArray {
        MLXArray([Int32(Self.letters.firstIndex(of: letter) ?? 0)])
    }

    private func allowed(_ processor: SchemaProcessor) -> [String] {
        let count = Self.letters.count
        let zeros = MLXArray([Float](repeating: 0, count: count), [1, count])
        let values = processor.process(logits: zeros).asArray(Float.self)
        return values.indices.filter { values[$0] == 0 }.map { Self.letters[$0] }
    }
}
