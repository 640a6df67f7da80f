import Foundation
import H2OTestModels
import XCTest

@testable import H2OSessions

final class SchemaTests: XCTestCase {
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
            areNot: [
                "{}", #"{"a":true,"b":null}"#, #"{"b":null,}"#, #"{"b":null,"d":1}"#,
                #"{"b":null,"b":null}"#, #"{"b":  null}"#, #"{"b":true}"#,
            ])
    }

    func testTheOrderCanBeGivenApart() throws {
        try check(
            #"{"properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "required": ["a"],"#
                + #""x-order": ["b", "a"]}"#,
            are: [#"{"b":null,"a":null}"#, #"{"a":null}"#],
            areNot: [#"{"a":null,"b":null}"#, #"{"b":null}"#])
    }

    func testTheNumberOfMembersHasItsLimits() throws {
        let three = #""properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {}}"#
        try check(
            "{\(three), \"required\": [\"b\"], \"minProperties\": 2, \"maxProperties\": 2}",
            are: [#"{"a":null,"b":null}"#],
            areNot: [#"{"b":null}"#, #"{"a":null,"b":null,"c":1}"#])
        assertRefused(
            "{\(three), \"minProperties\": 4}", .noInstance(place: ""))
    }

    func testAnObjectOfAnyNamesIsAMap() throws {
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
            are: ["[1]", "[1, 2,3]"], areNot: ["[]", "[1,2,3,4]", "[1,]", "[,1]", "[true]"])
        try check(
            #"{"prefixItems": [{"type": "null"}, {"type": "boolean"}], "items": false}"#,
            are: ["[null,true]"], areNot: ["[null]", "[null,true,1]", "[]"])
        try check(
            #"{"prefixItems": [{"type": "null"}], "items": {"type": "integer"}, "minItems": 3}"#,
            are: ["[null,1,2]", "[null,1,2,3]"], areNot: ["[null,1]", "[null]"])
        try check(#"{"items": {}, "maxItems": 0}"#, are: ["[]"], areNot: ["[1]"])
    }

    func testStringsCountCharactersAndNeedNoEscapesThatTheyDoNotHave() throws {
        try check(
            #"{"type": "string", "minLength": 2, "maxLength": 3}"#,
            are: [
                #""ab""#, #""\#u{e4}\#u{f6}\#u{fc}""#, #""a\n""#, #""\"\\\"""#,
                #""\#u{1f642}x""#,
            ],
            areNot: [#""a""#, #""abcd""#, "\"a\tb\"", #""a\u0041""#, #""ab"#, #"ab"#])
    }

    func testAPatternHoldsForTheWholeString() throws {
        try check(
            #"{"pattern": "^[a-c]{2}-\\d+(x|yz)?$"}"#,
            are: [#""ab-1""#, #""cc-007yz""#], areNot: [#""ad-1""#, #""ab-""#, #""ab-1x1""#])
        try check(
            #"{"pattern": "[^b-z]."}"#, are: [#""a!""#, #""\#u{e4}b""#],
            areNot: [#""bb""#, #""a""#, #"""x""#, #""\""#])
        try check(
            #"{"pattern": "a|b{2,}"}"#, are: [#""a""#, #""bbb""#], areNot: [#""ab""#, #""b""#])
        try check(
            #"{"pattern": "^ab$|^c$|d"}"#, are: [#""ab""#, #""c""#, #""d""#],
            areNot: [#""abc""#, #""a""#, #""c|d""#])
        try check(
            #"{"pattern": "^(ab|ac)+$"}"#, are: [#""acab""#], areNot: [#""aa""#, #""""#])
        try check(
            #"{"pattern": "[[&]\\s[^\\s\\W]"}"#, are: [#""[ a""#, #""& 1""#],
            areNot: [#""[aa""#, #""[ -""#, #""[ \#u{e4}""#])
        for pattern in [
            "a$b", "(a$)", "(^a)", #"(?=a)b"#, #"(a)\1"#, #"\bword"#, "a^b", "a\"b", #"\p{L}"#, "(",
            "a{2", #"[a\h]"#, "[a--b]",
        ] {
            let quoted = OrderedJSON.quoted(pattern)
            assertRefused(
                "{\"pattern\": \(quoted)}", .unsupported(keyword: "pattern", place: ""))
        }
    }

    func testWholeNumbersAreThoseBetweenTheirLimits() throws {
        for (least, most) in [(0, 9), (-7, 13), (98, 1203), (-1000, -99), (5, 5), (-3, 0)] {
            let grammar = ReferenceGrammar(
                try H2OSchema(
                    #"{"type": "integer", "minimum": \#(least), "maximum": \#(most)}"#
                ).grammar)
            for number in -1300 ... 1300 {
                XCTAssertEqual(
                    grammar.matches(String(number)), (least ... most).contains(number),
                    "\(number) in \(least)...\(most)")
            }
            for text in ["-0", "00", "01", "1.0", "+1", ""] {
                XCTAssertFalse(grammar.matches(text), text)
            }
        }
        try check(
            #"{"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 3.5}"#,
            are: ["1", "3"], areNot: ["0", "4"])
        try check(
            #"{"type": "integer", "minimum": 1.5}"#, are: ["2", "123456789012345"],
            areNot: ["1", "-2", "1234567890123456"])
    }

    func testNumbersAreThoseBetweenTheirLimits() throws {
        for (least, most) in [(0.5, 2.0), (-1.25, 1.5), (-3.0, -2.75), (9.0, 11.0)] {
            let grammar = ReferenceGrammar(
                try H2OSchema(#"{"type": "number", "minimum": \#(least), "maximum": \#(most)}"#)
                    .grammar)
            for hundredths in -1200 ... 1200 {
                let sign = hundredths < 0 ? "-" : ""
                let (whole, rest) = (abs(hundredths) / 100, abs(hundredths) % 100)
                let text = "\(sign)\(whole).\(rest < 10 ? "0" : "")\(rest)"
                let value = Double(hundredths) / 100
                XCTAssertEqual(
                    grammar.matches(text), (least ... most).contains(value),
                    "\(text) in \(least)...\(most)")
            }
        }
        try check(
            #"{"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}"#,
            are: ["0.01", "0.5", "0.99"], areNot: ["0", "0.00", "1", "1.00", "0."])
        try check(
            #"{"type": "number"}"#, are: ["0", "-0.5", "12.125"],
            areNot: ["01", ".5", "1.", "-", "1e5"])
    }

    func testListedValuesAreTheOnlyOnes() throws {
        try check(
            #"{"enum": ["a\"b", 1.50, null, [1, {"x": true}]]}"#,
            are: [#""a\"b""#, "1.50", "null", #"[1,{"x":true}]"#], areNot: ["1.5", "true", "\"a\""])
        try check(
            #"{"type": "integer", "enum": ["a", 1, 2.5, 3.0]}"#, are: ["1", "3.0"],
            areNot: ["2.5", #""a""#])
        try check(#"{"const": {"b": 1, "a": 2}}"#, are: [#"{"b":1,"a":2}"#], areNot: ["{}"])
    }

    func testNumbersAndListedValuesThatBeginAlikeShareARule() throws {
        for schema in [
            #"{"type": "number", "exclusiveMinimum": -13.646}"#,
            #"{"type": "integer", "minimum": -120, "maximum": 1305}"#,
            #"{"enum": ["re", "red", "rex", 1, 12, 123]}"#,
            #"{"anyOf": [{"const": "a"}, {"const": "ab"}, {"pattern": "ab|a."}]}"#,
        ] {
            let rules = try H2OSchema(schema).grammar.split(separator: "\n")
            for rule in rules where rule.hasPrefix("r") {
                let ways = rule.components(separatedBy: " ::= ")[1].components(separatedBy: " | ")
                let firsts = ways.map { $0.components(separatedBy: " ")[0] }
                XCTAssertEqual(Set(firsts).count, firsts.count, "\(rule)")
            }
        }
    }

    func testReferencesLeadToDefinitionsAndMayMeetThemselves() throws {
        try check(
            """
            {"$ref": "#/$defs/node", "$defs": {"node": {"properties": {
              "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
              "required": ["next"]}}}
            """,
            are: [#"{"next":null}"#, #"{"next":{"next":null}}"#], areNot: ["{}", "null"])
        try check(
            ##"{"type": ["null", "array"], "items": {"$ref": "#"}}"##,
            are: ["null", "[]", "[null,[null]]"], areNot: ["[1]"])
        try check(
            ##"{"properties": {"a/b": {"enum": ["x"]}, "c": {"$ref": "#/properties/a~1b"}}}"##,
            are: [#"{"c":"x"}"#], areNot: [#"{"c":"y"}"#])
        try check(
            ##"{"anyOf": [{"type": "null"}, {"items": {"$ref": "#/anyOf/0"}}]}"##,
            are: ["null", "[null,null]"], areNot: ["[1]"])
    }

    func testReferencesInASchemaWithAnIdentifierReferToIt() throws {
        try check(
            """
            {"properties": {"a": {"$id": "a", "properties": {
              "b": {"$ref": "#/$defs/x"}, "$id": {"$ref": "#"}}, "$defs": {"x": {"const": 1}}}},
              "$defs": {"x": {"const": 2}}}
            """,
            are: [#"{"a":{"b":1,"$id":{"b":1}}}"#], areNot: [#"{"a":{"b":2}}"#, #"{"a":{"a":{}}}"#])
    }

    func testExactlyOneIsReadAsAnyOne() throws {
        try check(
            """
            {"oneOf": [{"type": "null"}, {"type": "string"},
              {"properties": {"kind": {"const": "a"}}, "required": ["kind"]},
              {"properties": {"kind": {"const": "b"}}, "required": ["kind"]}]}
            """,
            are: ["null", #""x""#, #"{"kind":"a"}"#, #"{"kind":"b"}"#], areNot: ["1", "{}"])
    }

    func testAnyValueIsAnyJSON() throws {
        try check(
            "{}", are: ["1", #"{"a":[null,true,"x"]}"#, "[]"], areNot: ["", "tru", "[1 , 2]"])
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
            #"{"type": "integer", "minimum": 0.2, "maximum": 0.8}"#,
            #"{"minLength": 2, "maxLength": 1}"#, #"{"items": false, "minItems": 1}"#,
            #"{"type": "string", "enum": [1]}"#, ##"{"$ref": "#"}"##,
            ##"{"properties": {"a": {"$ref": "#"}}, "required": ["a"]}"##,
            ##"{"items": {"$ref": "#"}, "minItems": 1}"##,
        ] {
            assertRefused(schema, .noInstance(place: ""))
        }
    }

    func testWhatTextCannotBeHeldToIsRefusedByName() {
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
        assertRefused(#"{"allOf": [{}, {}]}"#, .unsupported(keyword: "allOf", place: ""))
        XCTAssertNoThrow(try H2OSchema(#"{"uniqueItems": false, "format": "x", "title": 1}"#))
    }

    func testASchemaIsSavedAsItsText() throws {
        let schema = try H2OSchema(#"{"type": "null"}"#)
        let saved = try JSONEncoder().encode([schema])
        XCTAssertEqual(try JSONDecoder().decode([H2OSchema].self, from: saved), [schema])
        XCTAssertThrowsError(try JSONDecoder().decode([H2OSchema].self, from: Data("[\"x\"]".utf8)))
    }

    private func check(
        _ schema: String, are: [String], areNot: [String], line: UInt = #line
    ) throws {
        let grammar = ReferenceGrammar(try H2OSchema(schema).grammar)
        for text in are { XCTAssertTrue(grammar.matches(text), "not \(text)", line: line) }
        for text in areNot { XCTAssertFalse(grammar.matches(text), text, line: line) }
    }

    private func assertRefused(
        _ schema: String, _ problem: H2OSessionError.SchemaProblem, line: UInt = #line
    ) {
        XCTAssertThrowsError(try H2OSchema(schema), schema, line: line) {
            XCTAssertEqual($0 as? H2OSessionError, .invalidSchema(problem), line: line)
        }
    }
}
