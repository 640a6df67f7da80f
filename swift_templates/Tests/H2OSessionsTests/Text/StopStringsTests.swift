import H2OSessions
import H2OTestModels
import XCTest

/// Tests that a text ends before the first stop string, in whichever pieces the text arrives.
final class StopStringsTests: XCTestCase {
    func testTheResultDoesNotDependOnThePieces() {
        let joined = "👩\u{200D}👧"
        let cases: [(text: String, stops: [String], shown: String)] = [
            ("one, END", [", END"], "one"),
            ("a\u{301}b", ["a"], ""),
            ("xe\u{301}y", ["é"], "xe\u{301}y"),
            ("x\(joined)!", ["👩"], "x"),
            ("END\u{301}", ["END"], ""),
            ("x\r\ny", ["\n"], "x\r"),
            ("aab", ["ab"], "a"),
            ("ababac", ["abac"], "ab"),
            ("🇩🇪🇫🇷", ["🇪🇫"], "🇩"),
            ("no end: EN", ["END"], "no end: EN"),
            ("e\u{301}", ["e\u{301}\u{302}"], "e\u{301}"),
        ]
        for (text, stops, shown) in cases {
            let scalars = Array(text.unicodeScalars)
            for size in 1 ... scalars.count {
                var filter = StopStrings(stops)
                var result = [String]()
                for start in stride(from: 0, to: scalars.count, by: size) {
                    let piece = scalars[start ..< min(start + size, scalars.count)]
                    result.append(filter.append(String(String.UnicodeScalarView(piece))))
                }
                result.append(filter.finish())
                XCTAssertEqual(
                    Array(result.joined().unicodeScalars), Array(shown.unicodeScalars),
                    "\(text) in pieces of \(size)")
                XCTAssertEqual(filter.isFound, shown != text, text)
            }
        }
    }
}
