import Foundation
import XCTest

@testable import H2OSessions

/// Schemas from outside, as those of tools, may be anything. Each is refused or read at once, on a
/// thread with the stack that threads of Apple's systems have.
final class HostileSchemaTests: XCTestCase {
    private func nested(_ depth: Int, _ open: String, _ close: String) -> String {
        String(repeating: open, count: depth) + #"{"type":"null"}"#
            + String(repeating: close, count: depth)
    }

    /// What became of a schema, and the processor's seconds that it took.
    private func result(of schema: String) -> (problem: H2OSessionError?, seconds: Double) {
        final class Box: @unchecked Sendable { var value: (H2OSessionError?, Double) = (nil, 0) }
        let (box, done) = (Box(), DispatchSemaphore(value: 0))
        let thread = Thread {
            let start = Self.seconds
            do {
                _ = try H2OSchema(schema)
            } catch {
                box.value.0 = error as? H2OSessionError
            }
            box.value.1 = Self.seconds - start
            done.signal()
        }
        thread.stackSize = 512 << 10
        thread.start()
        done.wait()
        return box.value
    }

    private static var seconds: Double {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }

    /// The best of three, since others use the processor's caches meanwhile.
    private func assertRefusedAtOnce(
        _ schema: String, _ problem: H2OSessionError.SchemaProblem, line: UInt = #line
    ) {
        let results = (0 ..< 3).map { _ in result(of: schema) }
        XCTAssertEqual(results[0].problem, .invalidSchema(problem), line: line)
        XCTAssertLessThan(results.map(\.seconds).min() ?? 1, Self.limit, line: line)
    }

    /// Seconds; code that is not optimized takes several times as long.
    private static var limit: Double {
        #if DEBUG
            0.25
        #else
            0.05
        #endif
    }

    func testNestingIsRefused() {
        let most = SchemaLimits.nesting
        assertRefusedAtOnce(
            nested(100_000 / 10, #"{"items":"#, "}"), .tooLarge(.nesting, atMost: most))
        assertRefusedAtOnce(
            nested(5000, #"{"properties":{"a":"#, "}}"), .tooLarge(.nesting, atMost: most))
        assertRefusedAtOnce(
            String(repeating: "[", count: 200_000), .tooLarge(.nesting, atMost: most))
        assertRefusedAtOnce(
            #"{"pattern":"\#(String(repeating: "(", count: 50_000))"}"#,
            .unsupported(keyword: "pattern", place: ""))
        assertRefusedAtOnce(
            #"{"pattern":"\#(String(repeating: "(", count: 500))"}"#,
            .unsupported(keyword: "pattern", place: ""))
        let growing = (1 ... 300).map { "\"\(String(repeating: "a", count: $0))\"" }
        assertRefusedAtOnce(
            #"{"enum":[\#(growing.joined(separator: ","))]}"#,
            .tooLarge(.nesting, atMost: most))
    }

    func testRecursionIsRefusedWhereItHasNoBegin() {
        assertRefusedAtOnce(
            ##"{"oneOf":[{"type":"null"},{"$ref":"#"}]}"##, .noInstance(place: ""))
        assertRefusedAtOnce(
            ##"{"anyOf":[{"type":"null"},{"$ref":"#/$defs/a"}],"##
                + ##""$defs":{"a":{"anyOf":[{"type":"string"},{"$ref":"#"}]}}}"##,
            .noInstance(place: ""))
        assertRefusedAtOnce(##"{"$ref":"#"}"##, .noInstance(place: ""))
        let chain = (0 ..< 1000).map { ##""d\##($0)":{"$ref":"#/$defs/d\##(($0 + 1) % 1000)"}"## }
        assertRefusedAtOnce(
            ##"{"$ref":"#/$defs/d0","$defs":{\##(chain.joined(separator: ","))}}"##,
            .noInstance(place: ""))
    }

    func testAbsurdNumbersAreRefused() {
        let most = SchemaLimits.count
        let long = #"{"type":"string","minLength":9000000000000000000}"#
        assertRefusedAtOnce(
            #"{"properties":{"a":\#(long),"b":\#(long)},"required":["a","b"]}"#,
            .tooLarge(.count, atMost: most))
        assertRefusedAtOnce(
            #"{"type":"array","minItems":1000000000000000000}"#, .tooLarge(.count, atMost: most))
        assertRefusedAtOnce(
            #"{"type":"string","maxLength":1e300}"#, .tooLarge(.count, atMost: most))
        assertRefusedAtOnce(
            nested(4, #"{"minItems":100,"items":"#, "}"),
            .tooLarge(.reply, atMost: SchemaLimits.reply))
        assertRefusedAtOnce(
            nested(30, #"{"minItems":65536,"items":"#, "}"),
            .tooLarge(.reply, atMost: SchemaLimits.reply))
        assertRefusedAtOnce(
            #"{"pattern":"a{99999999999999999999999}"}"#,
            .unsupported(keyword: "pattern", place: ""))
        assertRefusedAtOnce(
            #"{"pattern":"a{1000000000}"}"#, .unsupported(keyword: "pattern", place: ""))
    }

    func testMassesAreRefused() {
        assertRefusedAtOnce(
            #"{"const":"\#(String(repeating: "a", count: 300_000))"}"#,
            .tooLarge(.bytes, atMost: SchemaLimits.bytes))
        let nulls = [String](repeating: "{}", count: 5000).joined(separator: ",")
        assertRefusedAtOnce(
            #"{"anyOf":[\#(nulls)]}"#, .tooLarge(.ways, atMost: SchemaLimits.ways))
        let members = (0 ..< 5000).map { #""m\#($0)":{}"# }.joined(separator: ",")
        assertRefusedAtOnce(
            #"{"properties":{\#(members)}}"#, .tooLarge(.schemas, atMost: SchemaLimits.schemas))
        let numbers = (0 ..< 250).map {
            #"{"type":"number","minimum":-\#($0).123456789,"maximum":99999\#($0).987654321}"#
        }
        assertRefusedAtOnce(
            #"{"prefixItems":[\#(numbers.joined(separator: ","))]}"#,
            .tooLarge(.grammar, atMost: SchemaLimits.grammar))
    }

    /// What used to double per level grows by a line per level.
    func testArraysInArraysAreRead() throws {
        let schema = nested(60, #"{"items":"#, "}")
        XCTAssertNil(result(of: schema).problem)
        XCTAssertLessThan(try H2OSchema(schema).grammar.utf8.count, 10_000)
    }

    func testObjectsInObjectsAreReadWithASmallStack() {
        XCTAssertNil(result(of: nested(31, #"{"required":["a"],"properties":{"a":"#, "}}")).problem)
    }
}
