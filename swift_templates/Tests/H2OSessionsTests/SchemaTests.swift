import Foundation
import H2OTestModels
import MLX
import XCTest

@testable import H2OSessions

final class SchemaTests: XCTestCase {
    func testTheEngineGetsTheKeywordsThatItFollowsInTheirForms() throws {
        let character = #"(?:[^\"\\\\\\x00-\\x1f]|\\\\[\"\\\\/bfnrt])"#
        for (schema, form) in [
            ("true", "{}"),
            (#"{"title": "a", "format": "x", "uniqueItems": false}"#, "{}"),
            (#"{"const": [1, {"b": 1.50, "a": null}]}"#, #"{"enum":[[1,{"b":1.50,"a":null}]]}"#),
            (#"{"type": "integer", "enum": ["a", 1, 2.5, 3.0]}"#, #"{"enum":[1,3.0]}"#),
            (
                #"{"type": ["null", "string"]}"#,
                #"{"anyOf":[{"type":"null"},{"type":"string"}]}"#
            ),
            (#"{"oneOf": [{"type": "null"}, {}]}"#, #"{"anyOf":[{"type":"null"},{}]}"#),
            (#"{"allOf": [{"type": "null"}]}"#, #"{"type":"null"}"#),
            (
                #"{"minLength": 2, "maxLength": 3}"#,
                #"{"type":"string","pattern":"\#(character){2,3}"}"#
            ),
            (#"{"minLength": 2}"#, #"{"type":"string","pattern":"\#(character){2,}"}"#),
            (
                #"{"type": "integer", "exclusiveMinimum": 0, "maximum": 3.5}"#,
                #"{"type":"integer","exclusiveMinimum":0}"#
            ),
            (
                #"{"type": "integer", "minimum": -5}"#,
                #"{"type":"integer","minimum":-5,"maximum":999999999999999}"#
            ),
            (
                #"{"type": "number", "exclusiveMinimum": 0, "maximum": 10}"#,
                #"{"type":"number","exclusiveMinimum":0,"maximum":10}"#
            ),
            (#"{"type": "number", "minimum": -1, "maximum": 0.5}"#, #"{"type":"number"}"#),
            (#"{"type": "array"}"#, #"{"type":"array","items":{},"minItems":0}"#),
            (
                #"{"items": {"type": "null"}, "maxItems": 2}"#,
                #"{"type":"array","items":{"type":"null"},"minItems":0,"maxItems":2}"#
            ),
            (
                #"{"prefixItems": [{"type": "null"}, {}], "maxItems": 2}"#,
                #"{"type":"array","items":false,"minItems":0,"prefixItems":[{"type":"null"},{}]"#
                    + #","maxItems":2}"#
            ),
            (
                #"{"type": "object", "maxProperties": 2}"#,
                #"{"type":"object","additionalProperties":{},"minProperties":0,"maxProperties":2}"#
            ),
            (
                #"{"additionalProperties": false}"#,
                #"{"type":"object","additionalProperties":false,"minProperties":0}"#
            ),
            (
                #"{"properties": {"b": {}, "a": {"type": "null"}}, "required": ["a"]}"#,
                #"{"type":"object","properties":{"b":{},"a":{"type":"null"}},"required":["a"]}"#
            ),
        ] {
            XCTAssertEqual(
                try H2OSchema(schema).forEngine,
                ##"{"$ref":"#/$defs/d0","$defs":{"d0":\##(form)}}"##)
        }
    }

    func testAnObjectHasItsMembersInTheOrderOfTheSchema() throws {
        try check(
            """
            {"type": "object", "required": ["b"], "properties": {
              "b": {"type": "null"}, "a": {"type": "boolean"}, "c": {"type": "null"}}}
            """,
            are: [
                #"{"b":null}"#, #"{"b": null, "a": true}"#, #"{"b":null,"a":false,"c":null}"#,
                #"{"b":null,"c":null}"#,
            ],
            unwritten: [#"{"a":true,"b":null}"#, #"{"b":null,"d":1}"#, #"{"b":null,"b":null}"#],
            areNot: ["{}", #"{"b":true}"#])
    }

    func testTheOrderOfAppleSchemasIsApart() throws {
        try check(
            #"{"properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "required": ["a"],"#
                + #""x-order": ["b", "a"]}"#,
            are: [#"{"b":null,"a":null}"#, #"{"a":null}"#],
            unwritten: [#"{"a":null,"b":null}"#], areNot: [#"{"b":null}"#])
    }

    func testTheNumberOfMembersHasItsLimits() throws {
        try check(
            #"{"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 2}"#,
            are: ["{}", #"{"":1}"#, #"{"a\"b": 1, "c": -20}"#],
            areNot: [#"{"a":1,"b":2,"c":3}"#, #"{"a":"1"}"#, "{1:1}"])
        try check(
            #"{"type": "object", "additionalProperties": false}"#, are: ["{}"],
            areNot: [#"{"a":1}"#])
    }

    func testAnArrayHasAsManyElementsAsItMay() throws {
        try check(
            #"{"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3}"#,
            are: ["[1]", "[1, 2,3]"], areNot: ["[]", "[1,2,3,4]", "[true]"])
        try check(
            #"{"prefixItems": [{"type": "null"}, {"type": "boolean"}], "items": false}"#,
            are: ["[null,true]"], unwritten: ["[null]", "[]"], areNot: ["[null,true,1]", "[1]"])
        try check(
            #"{"prefixItems": [{"type": "null"}], "items": {"type": "integer"}, "minItems": 3}"#,
            are: ["[null,1,2]", "[null,1,2,3]"], areNot: ["[null,1]", "[null]"])
        try check(#"{"items": {}, "maxItems": 0}"#, are: ["[]"], areNot: ["[1]"])
    }

    func testStringsCountCharacters() throws {
        try check(
            #"{"type": "string", "minLength": 2, "maxLength": 3}"#,
            are: [
                #""ab""#, #""\#u{e4}\#u{f6}\#u{fc}""#, #""a\n""#, #""\"\\\"""#,
                #""\#u{1f642}x""#,
            ],
            areNot: [#""a""#, #""abcd""#, "\"a\tb\"", #""ab"#, #"ab"#])
        try check(
            #"{"type": "string"}"#, are: [#""\u00e4\"""#], letThrough: [#""\uD800""#],
            areNot: ["\"a\tb\"", "1"])
    }

    func testAPatternHolds() throws {
        try check(
            #"{"pattern": "^[a-c]{2}-\\d+(x|yz)?$"}"#,
            are: [#""ab-1""#, #""cc-007yz""#], areNot: [#""ad-1""#, #""ab-""#, #""ab-1x1""#])
        try check(
            #"{"pattern": "[^b-z]."}"#, are: [#""a!""#, #""\#u{e4}b""#], unwritten: [#""A\"""#],
            areNot: [#""bb""#, #""a""#, #"""x""#])
        try check(
            #"{"pattern": "a|b{2,}"}"#, are: [#""a""#, #""bbb""#], unwritten: [#""ab""#],
            areNot: [#""b""#])
        try check(
            #"{"pattern": "^ab$|^c$|d"}"#, are: [#""ab""#, #""c""#, #""d""#],
            areNot: [#""abc""#, #""a""#, #""c|""#])
        try check(
            #"{"pattern": "^(?:ab|ac)+$"}"#, are: [#""acab""#], areNot: [#""aa""#, #""""#])
        try check(
            #"{"pattern": "^[\\^\\[\\]-]{2}[ -~]$"}"#, are: [#""^[a""#, #""]- ""#],
            areNot: [#""a^b""#, #""^^""#])
        try check(
            #"{"pattern": "[\\[&]\\s[^\\s\\W]"}"#, are: [#""[ a""#, #""& 1""#],
            areNot: [#""[aa""#, #""[ -""#])
        for pattern in [
            "a$b", "(a$)", "(^a)", #"(?=a)b"#, #"(a)\1"#, #"\bword"#, "a^b", "a\"b", #"\p{L}"#, "(",
            "a{2", #"[a\h]"#, "[a--b]", "[a&&b]", "[[a]", "a)", #"a\n"#, "a{1,99999}",
        ] {
            let quoted = OrderedJSON.quoted(pattern)
            assertRefused(
                "{\"pattern\": \(quoted)}", .unsupported(keyword: "pattern", place: ""))
        }
    }

    func testNumbersAreThoseBetweenTheirLimits() throws {
        for (least, most) in [(0, 9), (-7, 13), (98, 1203), (-1000, -99), (5, 5), (-3, 0)] {
            let schema = #"{"type": "integer", "minimum": \#(least), "maximum": \#(most)}"#
            let numbers = [least, least - 1, most, most + 1, (least + most) / 2].map(String.init)
            try check(
                schema, are: [numbers[0], numbers[2], numbers[4]],
                areNot: [numbers[1], numbers[3], "01", "1.5", "+1", ""])
        }
        try check(
            #"{"type": "integer", "minimum": 1.5}"#, are: ["2", "123456789012345"],
            letThrough: ["1", "-2"], areNot: ["1.5"])
        try check(
            #"{"type": "number"}"#, are: ["0", "-0.5", "12.125", "1e5"],
            areNot: ["01", ".5", "1.", "-"])
        try check(
            #"{"type": "number", "exclusiveMinimum": 0, "maximum": 5}"#, are: ["0.5", "5", "4.99"],
            letThrough: ["5.9", "0"], areNot: ["6", "-1", "-"])
        try check(
            #"{"type": "number", "minimum": -0.5, "maximum": 0.5}"#, are: ["0.5", "-0.5", "0"],
            letThrough: ["0.6", "-1"], areNot: ["0 5"])
    }

    func testListedValuesAreTheOnlyOnes() throws {
        try check(
            #"{"enum": ["a\"b", 1.50, null, [1, {"x": true}]]}"#,
            are: [#""a\"b""#, "1.5", "null", #"[1,{"x":true}]"#],
            unwritten: ["1.50", "[1.0,{\"x\":true}]"],
            areNot: ["true", "\"a\"", "[1]", #"[1,{"y":true}]"#, "0"])
        try check(
            #"{"anyOf": [{"const": "a"}, {"const": "ab"}, {"enum": ["abc", "b"]}, {"maxLength": 1}]}"#,
            are: [#""a""#, #""ab""#, #""abc""#, #""b""#, #""x""#],
            areNot: [#""ba""#, #""xb""#, #""abx""#])
    }

    func testReferencesLeadToDefinitionsAndMayMeetThemselves() throws {
        try check(
            """
            {"$ref": "#/$defs/node", "$defs": {"node": {"properties": {
              "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
              "required": ["next"]}}}
            """,
            are: [#"{"next":null}"#, #"{"next":{"next":null}}"#], unwritten: ["null"],
            areNot: ["{}", #"{"next":{}}"#])
        try check(
            ##"{"type": ["null", "array"], "items": {"$ref": "#"}}"##,
            are: ["null", "[]", "[null,[null]]"], areNot: ["[1]"])
        try check(
            ##"{"properties": {"a/b": {"enum": ["x"]}, "c": {"$ref": "#/properties/a~1b"}}}"##,
            are: [#"{"c":"x"}"#], areNot: [#"{"c":"y"}"#])
        try check(
            ##"{"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#/anyOf/0"}}]}"##,
            are: ["null", "[null,null]"], areNot: ["[1]"])
    }

    func testReferencesInASchemaWithAnIdentifierReferToIt() throws {
        try check(
            """
            {"properties": {"a": {"$id": "a", "properties": {
              "b": {"$ref": "#/$defs/x"}, "$id": {"$ref": "#"}}, "$defs": {"x": {"const": 1}}}},
              "$defs": {"x": {"const": 2}}}
            """,
            are: [#"{"a":{"b":1,"$id":{"b":1}}}"#], unwritten: [#"{"a":{"a":{}}}"#],
            areNot: [#"{"a":{"b":2}}"#])
    }

    func testExactlyOneAlternativeHolds() throws {
        try check(
            """
            {"oneOf": [{"type": "null"}, {"type": "string"}, {"enum": ["a", 1]},
              {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]}]}
            """,
            are: ["null", #""x""#, "1", #"{"kind":"b"}"#], letThrough: [#""a""#],
            areNot: ["2", "{}"])
    }

    func testAnyValueIsAnyJSON() throws {
        try check(
            "{}", are: ["1", #"{"a":[null,true,"x"]}"#, "[]", "[1 , 2]"],
            areNot: ["", "tru", "[1,"])
    }

    func testACheckNamesTheKeywordThatDoesNotHold() throws {
        let schema = try H2OSchema(
            #"{"properties": {"a/b": {"items": {"anyOf": [{"type": "null"}, {"maximum": 5}]}}}}"#)
        for (reply, place) in [
            (#"{"a/b": [null, 5.9]}"#, "/properties/a~1b/items/anyOf"), (#"{"a/b": ["#, ""),
        ] {
            XCTAssertThrowsError(try schema.check(reply)) {
                XCTAssertEqual($0 as? H2OSessionError, .replyBreaksSchema(place: place))
            }
        }
    }

    func testACheckHasAnEnd() throws {
        let evil = try H2OSchema(#"{"pattern": "^(a+)+$"}"#)
        XCTAssertThrowsError(try evil.check("\"" + String(repeating: "a", count: 60) + "b\""))
        let ways = (0 ..< 9).map {
            ##"{"type":"array","items":{"$ref":"#"},"maxItems":\##(30 + $0)}"##
        }
        let deep = try H2OSchema(
            #"{"oneOf": [{"type": "null"},\#(ways.joined(separator: ","))]}"#)
        XCTAssertThrowsError(
            try deep.check(String(repeating: "[", count: 30) + String(repeating: "]", count: 30)))
    }

    func testWhatIsNoSchemaIsRefusedWithItsPlace() {
        assertRefused("no", .notJSON)
        for text in ["", "\"", "[1,]", #"{"type":"null",}"#, #"{"type" "null"}"#, "{}}"] {
            assertRefused(text, .notJSON)
        }
        assertRefused(#"{"type": "null", "type": "string"}"#, .notJSON)
        assertRefused("[]", .notASchema(place: "", expected: "an object, true or false"))
        assertRefused(
            #"{"properties": {"a/b": {"minLength": -1}}}"#,
            .notASchema(
                place: "/properties/a~1b/minLength", expected: "a whole number from 0"))
        assertRefused(
            #"{"items": [{}]}"#,
            .notASchema(place: "/items", expected: "an object, true or false"))
        assertRefused(
            #"{"enum": []}"#, .notASchema(place: "/enum", expected: "a list that is not empty"))
        assertRefused(
            ##"{"$ref": "#/$defs/x"}"##,
            .notASchema(place: "/$ref", expected: "the place of a schema in this document"))
        assertRefused(
            #"{"exclusiveMinimum": true}"#,
            .notASchema(place: "/exclusiveMinimum", expected: "a number"))
        XCTAssertThrowsError(try H2OSchema(#"{"type": "text"}"#)) {
            guard case H2OSessionError.invalidSchema(.notASchema("/type", _)) = $0 else {
                return XCTFail("\($0)")
            }
        }
    }

    func testWhatNoValueCanBeIsRefused() {
        for schema in [
            "false", #"{"type": "integer", "minimum": 2, "maximum": 1}"#,
            #"{"minLength": 2, "maxLength": 1}"#, #"{"items": false, "minItems": 1}"#,
            #"{"type": "string", "enum": [1]}"#, ##"{"$ref": "#"}"##,
            ##"{"properties": {"a": {"$ref": "#"}}, "required": ["a"]}"##,
            ##"{"items": {"$ref": "#"}, "minItems": 1}"##,
        ] {
            assertRefused(schema, .noInstance(place: ""))
        }
    }

    func testWhatTheEngineDoesNotFollowIsRefusedByName() {
        let refused = [
            "not": "{}", "if": "{}", "uniqueItems": "true", "multipleOf": "2", "contains": "{}",
            "patternProperties": "{}", "propertyNames": "{}", "dependentRequired": "{}",
            "unevaluatedProperties": "false", "$dynamicRef": "\"#x\"",
        ]
        for (keyword, value) in refused {
            assertRefused(
                "{\"items\": {\"\(keyword)\": \(value)}}",
                .unsupported(keyword: keyword, place: "/items"))
        }
        assertRefused(#"{"required": ["a"]}"#, .unsupported(keyword: "required", place: ""))
        assertRefused(
            #"{"enum": ["a"], "minLength": 2}"#, .unsupported(keyword: "minLength", place: ""))
        assertRefused(#"{"$ref": "other.json"}"#, .unsupported(keyword: "$ref", place: ""))
        assertRefused(
            #"{"properties": {"a": {}}, "maxProperties": 1}"#,
            .unsupported(keyword: "maxProperties", place: ""))
        assertRefused(#"{"allOf": [{}, {}]}"#, .unsupported(keyword: "allOf", place: ""))
        assertRefused(
            #"{"pattern": "a", "maxLength": 2}"#, .unsupported(keyword: "pattern", place: ""))
        assertRefused(
            #"{"properties": {"a\" | \"b": {}}}"#, .unsupported(keyword: "properties", place: ""))
    }

    func testASchemaIsSavedAsItsText() throws {
        let schema = try H2OSchema(#"{"type": "null"}"#)
        let saved = try JSONEncoder().encode([schema])
        XCTAssertEqual(try JSONDecoder().decode([H2OSchema].self, from: saved), [schema])
        XCTAssertThrowsError(try JSONDecoder().decode([H2OSchema].self, from: Data("[\"x\"]".utf8)))
    }

    /// Checks texts by the schema, and by the engine if there is one.
    ///
    /// - Parameters:
    ///   - unwritten: valid texts that the engine does not allow
    ///   - letThrough: invalid texts that the engine allows
    private func check(
        _ schema: String, are: [String], unwritten: [String] = [], letThrough: [String] = [],
        areNot: [String], line: UInt = #line
    ) throws {
        let schema = try H2OSchema(schema)
        for text in are + unwritten {
            XCTAssertNoThrow(try schema.check(text), text, line: line)
        }
        for text in letThrough + areNot {
            XCTAssertThrowsError(try schema.check(text), text, line: line)
        }
        guard hasGrammarEngine else { return }
        for text in are + letThrough {
            XCTAssertTrue(try engine(schema, allows: text), text, line: line)
        }
        for text in unwritten + areNot {
            XCTAssertFalse(try engine(schema, allows: text), text, line: line)
        }
    }

    /// Characters that the texts of these tests have, as a vocabulary, after the token that ends.
    private static let letters: [Character] =
        ["|"]
        + (32 ..< 127).map { Character(Unicode.Scalar(UInt8($0))) }
        .filter { $0 != "|" } + ["\t", "\u{e4}", "\u{f6}", "\u{fc}", "\u{1f642}"]
    private static let tokenizer = TestTokenizer(letters: letters)
    private let grammars = SchemaGrammars(tokenizer: tokenizer, endOfTurn: 0, stops: [])

    private func engine(_ schema: H2OSchema, allows text: String) throws -> Bool {
        var processor = try grammars.processor(for: schema, atMost: nil)
        let zeros = MLXArray(
            [Float](repeating: 0, count: Self.letters.count), [1, Self.letters.count])
        for token in Self.tokenizer.tokens(of: text) + [0] {
            let values = processor.process(logits: zeros).asArray(Float.self)
            guard values[token] > -.infinity else { return false }
            processor.didSample(token: MLXArray([Int32(token)]))
        }
        return true
    }

    private func assertRefused(
        _ schema: String, _ problem: H2OSessionError.SchemaProblem, line: UInt = #line
    ) {
        XCTAssertThrowsError(try H2OSchema(schema), schema, line: line) {
            XCTAssertEqual($0 as? H2OSessionError, .invalidSchema(problem), line: line)
        }
    }
}
