import MLXLMCommon

/// Turns tokens into text as they arrive.
///
/// A character may take several tokens, and a token's text may depend on the previous token. So
/// a segment is decoded as a whole, and a new segment begins after each line.
struct ReplyText {
    private let tokenizer: any Tokenizer
    /// Whether special tokens are left out. Some models mark tool calls and thoughts with them.
    private let skipsSpecialTokens: Bool
    private var segment = [Int]()
    /// Unicode scalars of the segment that were returned already.
    private var shown = 0

    init(tokenizer: any Tokenizer, skipsSpecialTokens: Bool) {
        self.tokenizer = tokenizer
        self.skipsSpecialTokens = skipsSpecialTokens
    }

    /// The text that one more token adds; empty while a character is incomplete.
    mutating func append(_ token: Int) -> String {
        segment.append(token)
        let text = decoded
        guard text.last != "\u{FFFD}" else { return "" }
        let new = take(text)
        if new.hasSuffix("\n") {
            segment = [token]
            shown = decoded.count
        }
        return new
    }

    /// The text that was held back.
    mutating func finish() -> String { take(decoded) }

    private var decoded: String.UnicodeScalarView {
        tokenizer.decode(tokenIds: segment, skipSpecialTokens: skipsSpecialTokens).unicodeScalars
    }

    private mutating func take(_ text: String.UnicodeScalarView) -> String {
        defer { shown = max(shown, text.count) }
        return String(text.dropFirst(shown))
    }
}
