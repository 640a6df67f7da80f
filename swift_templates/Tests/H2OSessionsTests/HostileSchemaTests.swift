import Foundation
import H2OTestModels
import XCTest

@testable import H2OSessions

/// Tests schemas from untrusted sources, such as those of tools. Each must be refused or read in a
/// bounded number of steps, on a thread with the default stack size of Apple's systems.
final class HostileSchemaTests: XCTestCase {
    private func nested(_ depth: Int, _ open: String, _ close: String) -> String {
        String(repeating: open, count: depth) + #"{"type":"null"}"#
            + String(repeating: close, count: depth)
    }

    /// The error for a schema, nil if it was accepted, and the steps of work.
    private func result(of schema: String) -> (problem: H2OSessionError?, steps: Int) {
        let results = Recorder<(problem: H2OSessionError?, steps: Int)>()
        onAppThread {
            var steps = 0
            let result = Result {
                var reader = try SchemaReader(schema)
                defer { steps = reader.steps }
                _ = try reader.read()
            }
            var problem: H2OSessionError?
            if case .failure(let error) = result { problem = error as? H2OSessionError }
            results.add((problem, steps))
        }
        return results.entries[0]
    }

    private func assertRefusedAtOnce(
        _ schema: String, _ problem: H2OSessionError.SchemaProblem, line: UInt = #line
    ) {
        let result = result(of: schema)
        XCTAssertEqual(result.problem, .invalidSchema(problem), line: line)
        // The last piece of work, which exceeds the limit, is counted completely.
        XCTAssertLessThan(result.steps, 2 * SchemaLimits.work, line: line)
    }

    private func assertTooLarge(_ schema: String, below beginning: String, line: UInt = #line) {
        let result = result(of: schema)
        guard case .invalidSchema(.tooLarge(let place))? = result.problem else {
            return XCTFail("\(String(describing: result.problem))", line: line)
        }
        XCTAssertTrue(place.hasPrefix(beginning), place, line: line)
        XCTAssertLessThan(result.steps, 2 * SchemaLimits.work, line: line)
    }

    func testNestingIsRefused() {
        for schema in [
            nested(10_000, #"{"items":"#, "}"), nested(5000, #"{"properties":{"a":"#, "}}"),
            String(repeating: "[", count: 200_000),
        ] {
            assertRefusedAtOnce(schema, .tooLarge(place: ""))
        }
        for count in [500, 50_000] {
            assertRefusedAtOnce(
                #"{"pattern":"\#(String(repeating: "(", count: count))"}"#,
                .unsupported(keyword: "pattern", place: ""))
        }
    }

    func testRecursionIsRefusedWhereItHasNoBegin() {
        let chain = (0 ..< 1000).map { ##""d\##($0)":{"$ref":"#/$defs/d\##(($0 + 1) % 1000)"}"## }
        for schema in [
            ##"{"oneOf":[{"type":"null"},{"$ref":"#"}]}"##,
            ##"{"anyOf":[{"type":"null"},{"$ref":"#/$defs/a"}],"##
                + ##""$defs":{"a":{"anyOf":[{"type":"string"},{"$ref":"#"}]}}}"##,
            ##"{"$ref":"#"}"##,
            ##"{"$ref":"#/$defs/d0","$defs":{\##(chain.joined(separator: ","))}}"##,
        ] {
            assertRefusedAtOnce(schema, .noInstance(place: ""))
        }
    }

    func testAbsurdNumbersAreRefused() {
        let long = #"{"type":"string","minLength":9000000000000000000}"#
        assertRefusedAtOnce(
            #"{"properties":{"a":\#(long),"b":\#(long)},"required":["a","b"]}"#,
            .tooLarge(place: "/properties/a/minLength"))
        assertRefusedAtOnce(
            #"{"type":"array","minItems":1000000000000000000}"#, .tooLarge(place: "/minItems"))
        assertRefusedAtOnce(
            #"{"type":"string","maxLength":1e300}"#, .tooLarge(place: "/maxLength"))
        for (depth, count) in [(4, 100), (30, 65_536)] {
            assertRefusedAtOnce(
                nested(depth, #"{"minItems":\#(count),"items":"#, "}"), .tooLarge(place: ""))
        }
        for count in [
            "1000000000", "99999999999999999999999", "-1", "+1", "-1,", "0,+1", "\u{661}",
        ] {
            assertRefusedAtOnce(
                #"{"pattern":"a{\#(count)}"}"#, .unsupported(keyword: "pattern", place: ""))
        }
    }

    func testMassesAreRefused() {
        let patterns = (0 ..< 3).map { list in
            #"{"pattern":"\#((0 ..< 60).map { "[^a-z\(list)\($0)]" }.joined())"}"#
        }
        for (schema, place) in [
            (#"{"prefixItems":[\#(patterns.joined(separator: ","))]}"#, "/prefixItems/2"),
            (#"{"const":"\#(String(repeating: "a", count: 300_000))"}"#, ""),
            (#"{"const":"\#(String(repeating: "a", count: 30_000))"}"#, ""),
            (
                #"{"anyOf":[\#([String](repeating: "{}", count: 5000).joined(separator: ","))]}"#,
                "/anyOf"
            ),
        ] {
            assertRefusedAtOnce(schema, .tooLarge(place: place))
        }
        let members = (0 ..< 5000).map { #""m\#($0)":{}"# }.joined(separator: ",")
        assertRefusedAtOnce(#"{"properties":{\#(members)}}"#, .tooLarge(place: ""))
        let few = (0 ..< 250).map { #""m\#($0)":{}"# }.joined(separator: ",")
        assertTooLarge(#"{"properties":{\#(few)}}"#, below: "")
        for part in [
            #"{"type":"number","minimum":1,"maximum":99999}"#, #"{"maxLength":70}"#,
            #"{"type":"integer","minimum":1,"maximum":99999}"#,
        ] {
            let list = [String](repeating: part, count: 250).joined(separator: ",")
            assertTooLarge(#"{"prefixItems":[\#(list)]}"#, below: "/prefixItems/")
        }
    }

    func testArraysInArraysAreRead() throws {
        XCTAssertNil(result(of: nested(46, #"{"items":"#, "}")).problem)
    }

    func testALongWayToAnInstanceIsCheckedWithASmallStack() throws {
        let chain = (0 ..< 1000).map { ##""d\##($0)":{"$ref":"#/$defs/d\##($0 + 1)"}"## }
        let schema =
            ##"{"$ref":"#/$defs/d0","$defs":{\##(chain.joined(separator: ",")),"d1000":{}}}"##
        XCTAssertNil(result(of: schema).problem)
        let errors = Recorder<H2OSessionError?>()
        onAppThread {
            let result = Result { try H2OSchema(schema).check("1") }
            if case .failure(let error) = result { errors.add(error as? H2OSessionError) }
        }
        guard case .replyBreaksSchema? = errors.entries.first ?? nil else {
            return XCTFail("\(errors.entries)")
        }
    }

    func testObjectsInObjectsAreReadWithASmallStack() {
        XCTAssertNil(result(of: nested(23, #"{"required":["a"],"properties":{"a":"#, "}}")).problem)
    }
}

/// Runs work on a thread with the default stack size of Apple's systems.
func onAppThread(_ work: @escaping @Sendable () -> Void) {
    let done = DispatchSemaphore(value: 0)
    let thread = Thread {
        work()
        done.signal()
    }
    thread.stackSize = 512 << 10
    thread.start()
    done.wait()
}
