import Foundation
import MLXLMCommon

/// Turns tokens into text as they arrive. The pieces together are the text of all tokens decoded at
/// once.
///
/// The next token may change the end of the text so far: bytes become a character, or the space
/// before a comma vanishes. So the end is held back until it can no longer change. Only the last
/// tokens are decoded again with each new token, so the time grows linearly with the reply.
package struct ReplyText: TokenText {
    private let tokenizer: any Tokenizer
    /// Whether to leave out special tokens. Some models mark tool calls and thoughts with them.
    private let skipsSpecialTokens: Bool
    /// The last tokens, which are decoded together.
    private var window = [Int]()
    /// The text of the window.
    private var text = [Unicode.Scalar]()
    /// The beginning of the window's text that was returned already.
    private var returned = [Unicode.Scalar]()
    /// The number of scalars at the end of the text that the tokenizer may still change.
    private let unsure: Int
    /// The number of tokens at which the window becomes shorter.
    private var limit = shortest
    /// Whether the window ends with tokens of single bytes, which may be part of one character.
    private var endsInBytes = false

    private static let shortest = 24
    /// At least as many scalars as a rule of clean-up changes, such as " 've".
    private static let margin = 8

    /// - Parameter tokens: tokens before the text, on which it may depend
    package init(
        after tokens: some Sequence<Int> = [Int](), tokenizer: any Tokenizer,
        skipsSpecialTokens: Bool
    ) {
        self.tokenizer = tokenizer
        self.skipsSpecialTokens = skipsSpecialTokens
        unsure = tokenizer.cleansUpSpaces ? Self.margin : 0
        window = Array(tokens)
        guard !window.isEmpty else { return }
        text = decoded(window)
        returned = text
    }

    /// Returns the text that is certain with this token; empty while a character is incomplete.
    package mutating func append(_ token: Int) -> String {
        window.append(token)
        if tokenizer.isByte(token) {
            // One invalid byte changes the text of all bytes beside it.
            endsInBytes = true
            return ""
        }
        if endsInBytes, skipsSpecialTokens, decoded([token]).isEmpty { return "" }
        endsInBytes = false
        let before = text
        text = decoded(window)
        if text == before, isLeftOut(token) {
            window.removeLast()
            return ""
        }
        let new = take(upTo: certainEnd)
        if window.count >= limit { shortenWindow() }
        return new
    }

    /// Returns the text that was held back.
    package mutating func finish() -> String {
        guard !window.isEmpty else { return "" }
        text = decoded(window)
        return take(upTo: text.count)
    }

    private func decoded(_ tokens: [Int]) -> [Unicode.Scalar] {
        let text = tokenizer.decode(tokenIds: tokens, skipSpecialTokens: skipsSpecialTokens)
        return Array(text.unicodeScalars)
    }

    /// The number of scalars that no later token changes. An incomplete character is shown as up to
    /// three replacement characters.
    private var certainEnd: Int {
        let incomplete = text.suffix(3).reversed().prefix { $0 == "\u{FFFD}" }.count
        return max(0, text.count - max(incomplete, unsure))
    }

    /// Returns the text up to this place that was not returned before. If the tokenizer changed text
    /// that was returned, the text from the first change on is new.
    private mutating func take(upTo end: Int) -> String {
        let same = zip(returned, text).prefix { $0 == $1 }.count
        guard end > same else { return "" }
        let new = String(String.UnicodeScalarView(text[same ..< end]))
        returned = Array(text[..<end])
        return new
    }

    /// Whether a token that did not change the text is special and left out. A space at the beginning
    /// of a text has no text either, but two have.
    private func isLeftOut(_ token: Int) -> Bool {
        skipsSpecialTokens && window.count > 1 && decoded([token]).isEmpty
            && decoded([token, token]).isEmpty
    }

    /// Keeps only the last tokens of the window, if their text alone is the end of the window's text.
    /// Then the text of later tokens depends only on them.
    private mutating func shortenWindow() {
        var count = 4
        while count <= window.count / 2, text.starts(with: returned) {
            let last = Array(window.suffix(count))
            let end = decoded(last)
            if end.count >= 2 * Self.margin, text.count - end.count <= returned.count,
                text.suffix(end.count).elementsEqual(end)
            {
                returned.removeFirst(text.count - end.count)
                (window, text, limit) = (last, end, Self.shortest)
                return
            }
            count *= 2
        }
        limit *= 2
    }
}

extension Tokenizer {
    /// Whether decoding removes spaces before punctuation.
    fileprivate var cleansUpSpaces: Bool {
        let marks = [".", ",", "?", "!"]
        let tokens = encode(text: "a" + marks.map { " \($0) a" }.joined(), addSpecialTokens: false)
        let text = decode(tokenIds: tokens, skipSpecialTokens: true)
        return marks.contains { text.contains("a\($0)") }
    }

    /// Whether a token is a byte of a character that the vocabulary lacks, such as `<0xE2>`.
    fileprivate func isByte(_ token: Int) -> Bool {
        guard let name = convertIdToToken(token)?.utf8, name.count == 6 else { return false }
        return name.starts(with: "<0x".utf8) && name.last == UInt8(ascii: ">")
    }
}
