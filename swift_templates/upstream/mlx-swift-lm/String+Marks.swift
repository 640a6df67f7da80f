// Marks and stop strings are compared by their bytes. Swift's own search compares characters, and a
// combining mark or a joiner that arrives later would change the last character of a mark.

extension StringProtocol {
    /// The first place of a mark.
    public func firstRange(ofMark mark: String) -> Range<String.Index>? {
        guard let first = mark.utf8.first else { return nil }
        var rest = utf8[...]
        while let start = rest.firstIndex(of: first) {
            rest = rest[start...]
            if rest.starts(with: mark.utf8) {
                return start ..< rest.index(start, offsetBy: mark.utf8.count)
            }
            rest = rest.dropFirst()
        }
        return nil
    }

    /// The place from which the rest of the text is the beginning of a mark; the end of the text if
    /// there is none.
    public func beginning(ofMark mark: String) -> String.Index {
        let count = Swift.min(utf8.count, mark.utf8.count - 1)
        guard count > 0 else { return endIndex }
        var start = utf8.index(utf8.endIndex, offsetBy: -count)
        while start < endIndex, !mark.utf8.starts(with: utf8[start...]) {
            utf8.formIndex(after: &start)
        }
        return start
    }

    /// Whether the text begins with a mark.
    public func begins(withMark mark: String) -> Bool { utf8.starts(with: mark.utf8) }
}
