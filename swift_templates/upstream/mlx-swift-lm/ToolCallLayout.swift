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

    /// How far a text was scanned, so that a longer text with the same beginning is scanned from
    /// there.
    struct Progress {
        /// Bytes.
        fileprivate var scanned = 0
        fileprivate var depth = 0
        fileprivate var quote: UInt8?
        fileprivate var isEscaped = false
    }

    /// The end of the bracket with which the text begins; nil if the bracket stays open.
    ///
    /// - Parameter progress: how far the last call came, with less of the same text
    func end(of text: Substring, _ progress: inout Progress) -> String.Index? {
        scan(text, &progress) { _ in }
    }

    /// The elements of the bracket with which the text begins, without commas; nil if the bracket
    /// stays open.
    func elements(of text: Substring) -> [String]? {
        var commas = [String.Index]()
        var progress = Progress()
        guard let end = scan(text, &progress, onComma: { commas.append($0) }) else { return nil }
        let starts = ([text.startIndex] + commas).map { text.utf8.index(after: $0) }
        let ends = commas + [text.utf8.index(before: end)]
        return zip(starts, ends).map { String(text[$0 ..< $1]) }
    }

    /// Finds the place where the first bracket closes.
    ///
    /// - Parameter onComma: receives the commas directly inside the first bracket
    private func scan(
        _ text: Substring, _ progress: inout Progress, onComma: (String.Index) -> Void
    ) -> String.Index? {
        let bytes = text.utf8
        var index = bytes.index(bytes.startIndex, offsetBy: progress.scanned)
        while index < bytes.endIndex {
            let byte = bytes[index]
            let here = index
            bytes.formIndex(after: &index)
            progress.scanned += 1
            if progress.isEscaped {
                progress.isEscaped = false
            } else if let open = progress.quote {
                if byte == UInt8(ascii: "\\") { progress.isEscaped = true }
                if byte == open { progress.quote = nil }
            } else if quotes.contains(byte) {
                progress.quote = byte
            } else if "([{".utf8.contains(byte) {
                progress.depth += 1
            } else if ")]}".utf8.contains(byte) {
                progress.depth -= 1
                if progress.depth == 0 { return index }
            } else if byte == UInt8(ascii: ","), progress.depth == 1 {
                onComma(here)
            }
        }
        return nil
    }
}
