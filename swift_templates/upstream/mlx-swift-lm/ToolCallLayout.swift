/// How a format writes tool calls in the text of a reply: the facts that mlx-swift-lm's parser of the
/// format does not tell.
struct ToolCallLayout {
    /// The mark before each call of a block that may contain several calls.
    var callMark: String?
    /// The mark before the JSON object that ends a call without an end mark.
    var argumentsMark: String?
    /// The mark that makes the following text a call, in a format whose calls may have no mark.
    var optionalMark: String?
    /// Whether calls may be a list in brackets, as in Python.
    var isList = false
    /// Whether a call may be a JSON object without marks.
    var allowsBareJSON = false
    /// Whether a call without its end is malformed, although the parser accepts it.
    var needsEnd = false
}

/// Finds brackets in a text with quoted parts.
struct Brackets {
    static let json = Brackets(quotes: "\"")
    static let python = Brackets(quotes: "\"'")

    private let quotes: [UInt8]

    private init(quotes: String) { self.quotes = Array(quotes.utf8) }

    /// The end of the bracket at the beginning of the text; nil if it stays open.
    func end(of text: Substring) -> String.Index? { scan(text).end }

    /// The elements between the commas of the bracket at the beginning of the text; nil if it stays
    /// open.
    func elements(of text: Substring) -> [String]? {
        let (end, commas) = scan(text)
        guard let end else { return nil }
        let starts = ([text.startIndex] + commas).map { text.index(after: $0) }
        let ends = commas + [text.index(before: end)]
        return zip(starts, ends).map { String(text[$0 ..< $1]) }
    }

    /// The place where the first bracket closes, and the commas directly inside it.
    private func scan(_ text: Substring) -> (end: String.Index?, commas: [String.Index]) {
        var commas = [String.Index]()
        var depth = 0
        var quote: UInt8?
        var isEscaped = false
        for index in text.utf8.indices {
            let byte = text.utf8[index]
            if isEscaped {
                isEscaped = false
            } else if let open = quote {
                if byte == UInt8(ascii: "\\") { isEscaped = true }
                if byte == open { quote = nil }
            } else if quotes.contains(byte) {
                quote = byte
            } else if "([{".utf8.contains(byte) {
                depth += 1
            } else if ")]}".utf8.contains(byte) {
                depth -= 1
                if depth == 0 { return (text.utf8.index(after: index), commas) }
            } else if byte == UInt8(ascii: ","), depth == 1 {
                commas.append(index)
            }
        }
        return (nil, commas)
    }
}
