import Foundation
import H2OSessions
import H2OTestModels
import MLXLMCommon
import XCTest

/// Tests that streamed text is the text of all tokens decoded at once, with tokenizers of several
/// kinds.
final class ReplyTextTests: XCTestCase {
    /// The number of random tokens for each tokenizer. More: `H2O_RANDOM_TOKENS=1000000`.
    private var count: Int {
        ProcessInfo.processInfo.environment["H2O_RANDOM_TOKENS"].flatMap(Int.init) ?? 500
    }

    private static let texts = [
        "def f(x):\n    if x != 1 :\n        return [1\n    , 2]\n",
        "I do n't know , he 's here . Do you ? Yes ! a ' b ' c ' . d",
        "    .bashrc", " leading", "trailing ", "", "\n\n", "a\r\nb", "x\u{301}y", "e\u{301}",
        "👩\u{200D}👩\u{200D}👧\u{200D}👦 and 👩🏽\u{200D}🚀", "🇩🇪🇫🇷", "1\u{FE0F}\u{20E3}", "日本語とemoji😀",
        "{\"a\": [1, 2.5], \"b\": \"\\u00e9\"}", "\u{FFFD} and \u{FFFD}\u{FFFD}", "አማርኛ ሕዝብ",
    ]

    func testStreamedRandomTokensAreTheTextOfAllTokens() {
        for kind in TextTokenizer.Kind.allCases {
            let tokenizer = TextTokenizer(kind)
            for skips in [true, false] {
                var numbers = SeededNumbers(7)
                let tokens = (0 ..< count).map { _ in
                    Int.random(in: 0 ..< tokenizer.count, using: &numbers)
                }
                check(tokens, tokenizer, skips)
            }
        }
    }

    /// Sequences in which few tokens follow each other in all orders, because the end of a text
    /// depends on them: spaces, quotes, parts of characters, special tokens.
    func testStreamedTokensThatChangeTheTextBeforeThemAreTheTextOfAllTokens() {
        for kind in TextTokenizer.Kind.allCases {
            let tokenizer = TextTokenizer(kind)
            var numbers = SeededNumbers(11)
            for _ in 0 ..< 25 {
                let few = (0 ..< 5).map { _ in
                    Int.random(in: 0 ..< tokenizer.count, using: &numbers)
                }
                let tokens = (0 ..< 60).map { _ in few.randomElement(using: &numbers) ?? 0 }
                check(tokens, tokenizer, true)
                check(tokens, tokenizer, false)
            }
        }
    }

    func testStreamedTextsAreLossless() {
        for kind in TextTokenizer.Kind.allCases where kind != .words {
            let tokenizer = TextTokenizer(kind)
            for text in Self.texts {
                check(tokenizer.encode(text: text, addSpecialTokens: false), tokenizer, true)
            }
            let all = String(repeating: Self.texts.joined(separator: " x\n"), count: 5)
            check(tokenizer.encode(text: all, addSpecialTokens: false), tokenizer, true)
        }
    }

    func testTextAfterAPromptIsAsIfBothWereDecodedAtOnce() {
        for kind in [TextTokenizer.Kind.bytes, .byteFallback] {
            let tokenizer = TextTokenizer(kind)
            let prompt = tokenizer.encode(text: "x the", addSpecialTokens: false)
            let tokens = tokenizer.encode(text: " the a", addSpecialTokens: false)
            var text = ReplyText(after: prompt, tokenizer: tokenizer, skipsSpecialTokens: true)
            let pieces = tokens.map { text.append($0) } + [text.finish()]
            XCTAssertEqual(pieces.joined(), " the a", "\(kind)")
        }
    }

    func testTextIsReturnedAsSoonAsItIsCertain() {
        let tokenizer = TextTokenizer(.bytes)
        var text = ReplyText(tokenizer: tokenizer, skipsSpecialTokens: true)
        let tokens = tokenizer.encode(text: "x do\n😀1", addSpecialTokens: false)
        XCTAssertEqual(tokens.map { text.append($0) }, ["x", " do", "\n", "", "", "", "😀", "1"])
    }

    func testTheTimeGrowsLinearlyWithTheReply() {
        for kind in TextTokenizer.Kind.allCases {
            let tokenizer = TextTokenizer(kind)
            for name in ["\n", "<0x41>", "<s>", "x", "a"] {
                guard let token = tokenizer.convertTokenToId(name) else { continue }
                let decoded = Recorder<Int>()
                let counting = ForwardingTokenizer(tokenizer) { decoded.add($0) }
                var text = ReplyText(tokenizer: counting, skipsSpecialTokens: true)
                for _ in 0 ..< 1000 { _ = text.append(token) }
                _ = text.finish()
                XCTAssertLessThan(decoded.entries.reduce(0, +), 1000 * 60, "\(kind): \(name)")
            }
        }
    }

    private func check(
        _ tokens: [Int], _ tokenizer: TextTokenizer, _ skips: Bool, line: UInt = #line
    ) {
        var text = ReplyText(tokenizer: tokenizer, skipsSpecialTokens: skips)
        let streamed = Array(
            (tokens.map { text.append($0) } + [text.finish()]).joined().unicodeScalars)
        let whole = Array(
            tokenizer.decode(tokenIds: tokens, skipSpecialTokens: skips).unicodeScalars)
        guard streamed != whole else { return }
        let place = zip(streamed, whole).prefix { $0 == $1 }.count
        let around = { (scalars: [Unicode.Scalar]) in
            scalars.dropFirst(max(0, place - 10)).prefix(20).map { $0.escaped(asASCII: true) }
                .joined()
        }
        XCTFail(
            "\(tokenizer.kind), \(tokens.count) tokens, at scalar \(place): streamed "
                + "\(around(streamed)), all at once \(around(whole))", line: line)
    }
}
