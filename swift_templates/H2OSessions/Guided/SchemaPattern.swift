/// Turns the regular expression of a `pattern` into a grammar of the strings that match it as a
/// whole and need no escapes in JSON.
struct SchemaPattern {
    private var rest: Substring.UnicodeScalarView

    /// - Returns: nil for an expression with look-around, references, anchors within it or other
    ///   things that a grammar has no words for
    static func grammar(of pattern: String) -> String? {
        var reader = SchemaPattern(rest: pattern[...].unicodeScalars)
        guard let grammar = reader.alternatives(isWhole: true), reader.rest.isEmpty else {
            return nil
        }
        return grammar
    }

    /// - Parameter isWhole: whether anchors may stand around each way
    private mutating func alternatives(isWhole: Bool = false) -> String? {
        var ways = [String]()
        repeat {
            if isWhole { _ = took("^") }
            guard let way = sequence() else { return nil }
            if isWhole { _ = took("$") }
            ways.append(way)
        } while took("|")
        return ways.joined(separator: " | ")
    }

    private mutating func sequence() -> String? {
        var parts = [String]()
        while let next = rest.first, !["|", ")", "$"].contains(next) {
            guard let atom = atom(), let count = count() else { return nil }
            parts.append(atom + count)
        }
        return parts.isEmpty ? #""""# : parts.joined(separator: " ")
    }

    private mutating func atom() -> String? {
        let next = rest.removeFirst()
        switch next {
        case "(":
            if took("?"), !took(":") { return nil }
            guard let inner = alternatives(), took(")") else { return nil }
            return "(\(inner))"
        case "[": return set()
        case ".": return "[\(SchemaGrammar.plain)]"
        case "\\":
            guard let escaped = rest.popFirst() else { return nil }
            return Self.classes[escaped].map { "[\($0)]" } ?? literal(escaped, escaped: true)
        case "*", "+", "?", "{", "}", "]", "^": return nil
        default: return literal(next, escaped: false)
        }
    }

    private static let classes: [Unicode.Scalar: String] = ["d": "0-9", "w": "a-zA-Z0-9_"]

    /// A character that stands for itself, in a string and in the expression.
    private func literal(_ scalar: Unicode.Scalar, escaped: Bool) -> String? {
        if escaped, scalar.properties.isAlphabetic || ("0" ... "9").contains(scalar) { return nil }
        guard scalar >= " ", scalar != "\"", scalar != "\\", scalar != "\u{7F}" else { return nil }
        return SchemaGrammar.quoted(String(scalar))
    }

    /// The rest of a set of ASCII characters.
    private mutating func set() -> String? {
        let isNegative = took("^")
        var members = Set<Unicode.Scalar>()
        while let low = rest.popFirst(), low != "]" {
            if low == "\\", let escaped = rest.first, let known = Self.members[escaped] {
                rest.removeFirst()
                members.formUnion(known)
                continue
            }
            guard let first = low == "\\" ? plainEscape() : low, first.isASCII else { return nil }
            var last = first
            if rest.first == "-", rest.dropFirst().first != "]" {
                rest.removeFirst()
                guard let high = rest.popFirst() else { return nil }
                guard let end = high == "\\" ? plainEscape() : high else { return nil }
                last = end
            }
            guard last.isASCII, first <= last else { return nil }
            members.formUnion((first.value ... last.value).compactMap(Unicode.Scalar.init))
        }
        let kept = Self.plain.filter { members.contains($0) != isNegative }
        guard !kept.isEmpty else { return nil }
        let codes = kept.map { "\\x" + String($0.value, radix: 16, uppercase: true) }.joined()
        return "[\(codes)\(isNegative ? #"\u00A0-\uD7FF\uE0A0-\U0010FFFF"# : "")]"
    }

    private mutating func plainEscape() -> Unicode.Scalar? {
        guard let scalar = rest.popFirst(), !scalar.properties.isAlphabetic else { return nil }
        return scalar
    }

    private static let plain: [Unicode.Scalar] = (0x20 ... 0x7E).compactMap(Unicode.Scalar.init)
        .filter { $0 != "\"" && $0 != "\\" }
    private static let members: [Unicode.Scalar: [Unicode.Scalar]] = [
        "d": plain.filter { ("0" ... "9").contains($0) },
        "w": plain.filter { $0.properties.isAlphabetic || ("0" ... "9").contains($0) || $0 == "_" },
    ]

    /// How often the last part comes; "" is once.
    private mutating func count() -> String? {
        var count = ""
        if let next = rest.first, ["*", "+", "?"].contains(next) {
            count = String(rest.removeFirst())
        } else if took("{") {
            while let next = rest.first, ("0" ... "9").contains(next) || next == "," {
                count.unicodeScalars.append(rest.removeFirst())
            }
            let ends = count.split(separator: ",", maxSplits: 1, omittingEmptySubsequences: false)
            let limits = ends.map { Int($0) }
            guard took("}"), let least = limits.first ?? nil else { return nil }
            if ends.count == 2, ends[1] != "" {
                guard let most = limits[1], least <= most else { return nil }
            }
            count = "{\(count)}"
        }
        if !count.isEmpty { _ = took("?") }
        return count
    }

    private mutating func took(_ scalar: Unicode.Scalar) -> Bool {
        guard rest.first == scalar else { return false }
        rest.removeFirst()
        return true
    }
}
