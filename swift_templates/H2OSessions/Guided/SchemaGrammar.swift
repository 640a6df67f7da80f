/// A part of a grammar, in the notation of the grammar engine, with the length of the shortest text
/// that it describes.
struct GrammarPart {
    let text: String
    /// Bytes of the shortest text, not counting the texts of ``rules``.
    var bytes = 0.0
    /// How often the shortest text contains each rule of the schema, by the rules' numbers.
    var rules = [Int: Double]()

    /// The rule of which this part consists; nil if the part describes other text too.
    var onlyRule: Int? { bytes == 0 && rules.count == 1 ? rules.first?.key : nil }

    /// The length of the shortest text, in bytes.
    ///
    /// - Parameter lengths: the length of each rule's shortest text, by the rule's number
    func length(_ lengths: [Double]) -> Double {
        rules.reduce(bytes) { $0 + $1.value * lengths[$1.key] }
    }

    static let nothing = GrammarPart(text: #""""#)

    /// A reference to one of the rules that every grammar has.
    static func common(_ name: String) -> GrammarPart {
        GrammarPart(text: name, bytes: commonRules[name]?.bytes ?? 0)
    }

    /// A reference to a rule of the schema. Rule 0 is the start rule.
    static func rule(_ number: Int) -> GrammarPart {
        GrammarPart(text: number == 0 ? "root" : "r\(number)", rules: [number: 1])
    }

    /// A part that describes only this text.
    static func quoted(_ text: String) -> GrammarPart {
        let escaped = text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"")
        return GrammarPart(text: "\"\(escaped)\"", bytes: Double(text.utf8.count))
    }

    /// One character of a set, which is in the notation of the grammar engine.
    static func set(_ characters: String) -> GrammarPart {
        GrammarPart(text: "[\(characters)]", bytes: 1)
    }

    static func sequence(_ parts: [GrammarPart]) -> GrammarPart {
        let parts = parts.filter { $0.text != nothing.text }
        guard parts.count > 1 else { return parts.first ?? nothing }
        return GrammarPart(
            text: "(\(parts.map(\.text).joined(separator: " ")))",
            bytes: parts.map(\.bytes).reduce(0, +),
            rules: parts.reduce(into: [:]) { $0.merge($1.rules, uniquingKeysWith: +) })
    }

    /// The part, as often as `counts` says; `Int.max` stands for no limit.
    func times(_ counts: ClosedRange<Int>) -> GrammarPart {
        let (least, most) = (counts.lowerBound, counts.upperBound)
        guard most != 0, text != Self.nothing.text else { return .nothing }
        let quantifier =
            switch (least, most) {
            case (1, 1): ""
            case (0, 1): "?"
            case (0, .max): "*"
            default: "{\(least),\(most == .max ? "" : String(most))}"
            }
        return GrammarPart(
            text: text + quantifier, bytes: bytes * Double(least),
            rules: least == 0 ? [:] : rules.mapValues { $0 * Double(least) })
    }

    /// Characters of a string that need no escape. The engine compares an ASCII byte only with the
    /// last byte of a range's ends, so no range beyond ASCII may begin or end below 0x80.
    static let plainCharacters = #"\x20-\x21\x23-\x5B\x5D-\x7E"# + charactersBeyondASCII
    static let charactersBeyondASCII = #"\u00A0-\uD7FF\uE0A0-\U0010FFFF"#

    /// The rules that every grammar has. They describe JSON without spaces, except for one space
    /// after a comma or colon. `bytes` is at least the length of the rule's shortest text.
    fileprivate static let commonRules: [String: (body: String, bytes: Double)] = [
        "any": ("string | number | boolean | null | array | object", 2),
        "array": (#""[" (any (comma any)*)? "]""#, 2),
        "boolean": (#""true" | "false""#, 4),
        "char": (#"[\#(plainCharacters)] | "\\" ["\\/bfnrt]"#, 2),
        "colon": (#"":" | ": ""#, 2),
        "comma": (#""," | ", ""#, 2),
        "end": (#""""#, 0),
        "integer": (#""0" | "-"? [1-9] [0-9]{0,14}"#, 16),
        "member": ("string colon any", 6),
        "null": (#""null""#, 4),
        "number": (#""-"? ("0" | [1-9] [0-9]{0,14}) ("." [0-9]{1,9})?"#, 17),
        "object": (#""{" (member (comma member)*)? "}""#, 2),
        "string": (#""\"" char* "\"""#, 2),
    ]
}

/// A grammar in the notation of the grammar engine. Every choice is a rule, so that the other parts
/// have one shortest text.
final class SchemaGrammar {
    /// All rules; the start rule is `root`.
    private(set) var text = GrammarPart.commonRules.sorted { $0.key < $1.key }
        .map { "\($0.key) ::= \($0.value.body)\n" }.joined()
    /// The number of steps of work so far. A part that is read twice counts twice.
    private(set) var steps = 0
    /// The alternatives of each rule, by its number.
    private var rules = [[GrammarPart]]()
    /// The numbers of the rules for each place in the schema. The last rule is for the whole place,
    /// the others are for its parts.
    private var places = [(path: [String], rules: [Int])]()

    /// The character sets of the patterns so far, by their regular expressions.
    var sets = [String: GrammarPart]()

    /// The steps of work for a schema inside the schema, for a byte of the grammar (which the engine
    /// reads too), and for a new set of characters.
    static let (schema, byte, set) = (256, 2, 8192)

    /// Adds steps of work.
    ///
    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` if the work exceeds ``SchemaLimits/work``
    func spend(_ more: Int, at path: [String] = []) throws {
        steps += more
        guard steps <= SchemaLimits.work else {
            throw H2OSessionError.invalidSchema(.tooLarge(place: path.pointer))
        }
    }

    /// Begins the rules of a place.
    func begin(_ path: [String]) { places.append((path, [])) }

    /// Returns the number of a rule that is defined later.
    func reserve() -> Int {
        rules.append([])
        return rules.count - 1
    }

    /// Adds a rule for one of several parts, and returns a reference to the rule.
    ///
    /// - Parameter number: the number of a reserved rule; nil for a new rule
    @discardableResult
    func rule(_ ways: [GrammarPart], _ number: Int? = nil) throws -> GrammarPart {
        let number = number ?? reserve()
        let rule = GrammarPart.rule(number)
        rules[number] = ways
        places[places.count - 1].rules.append(number)
        let line = "\(rule.text) ::= \(ways.map(\.text).joined(separator: " | "))\n"
        text += line
        try spend(Self.byte * line.utf8.count)
        return rule
    }

    /// One of several parts. Each becomes a rule that refers to a rule, because the engine merges
    /// other alternatives that begin alike, and may then accept more (xgrammar 0.1.30).
    func choice(_ ways: [GrammarPart]) throws -> GrammarPart {
        guard ways.count > 1 else { return ways[0] }
        return try rule(ways.map { try rule([.sequence([$0, .common("end")])]) })
    }

    /// Elements or members in their order, each as often as its counts say, with commas between them.
    func list(_ items: [(part: GrammarPart, counts: ClosedRange<Int>)]) throws -> GrammarPart {
        // The possible texts from an item on: `first` if no item is before it, `more` if one is.
        var (first, more) = ([GrammarPart.nothing], GrammarPart.nothing)
        for (part, counts) in items.reversed() where counts.upperBound > 0 {
            let part = try rule([part])
            let next = GrammarPart.sequence([.common("comma"), part])
            let all = GrammarPart.sequence([part, next.times(counts.without(1)), more])
            first = [all] + (counts.lowerBound == 0 ? first : [])
            more = try rule([.sequence([next.times(counts), more])])
        }
        return try choice(first)
    }

    /// One of several texts. In its rules, alternatives never begin with the same character, so that
    /// the engine follows one of them.
    ///
    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` if the work or the nesting exceeds its limit
    func texts(_ texts: [ArraySlice<Unicode.Scalar>], depth: Int = 0) throws -> GrammarPart {
        guard texts.count > 1 else { return .quoted(String(String.UnicodeScalarView(texts[0]))) }
        guard depth <= SchemaLimits.nesting else {
            throw H2OSessionError.invalidSchema(.tooLarge(place: ""))
        }
        try spend(4 * texts.map(\.count).reduce(0, +))
        let ways = Dictionary(grouping: texts, by: \.first).sorted {
            $0.key?.value ?? 0 < $1.key?.value ?? 0
        }
        let parts = try ways.map { _, texts in
            var (common, rest) = (String.UnicodeScalarView(), texts)
            while let next = rest[0].first, rest.allSatisfy({ $0.first == next }) {
                common.append(next)
                rest = rest.map { $0.dropFirst() }
            }
            let begin = GrammarPart.quoted(String(common))
            return rest.allSatisfy(\.isEmpty)
                ? begin : .sequence([begin, try self.texts(rest, depth: depth + 1)])
        }
        return try rule(parts)
    }

    /// Returns how many bytes one more character can add to the shortest end of a reply. This is the
    /// largest length, over all rules, of a rule's shortest text.
    ///
    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` if a part has no instance, or is too large
    func longestEnd() throws -> Int {
        let lengths = try lengths()
        var most = 0.0
        for (path, rules) in places {
            let longest = rules.map { lengths[$0] }.max() ?? 0
            guard longest < .infinity, try !beginsWithItself(rules[rules.count - 1], path) else {
                throw H2OSessionError.invalidSchema(.noInstance(place: path.pointer))
            }
            guard longest <= Double(SchemaLimits.reply) else {
                throw H2OSessionError.invalidSchema(.tooLarge(place: path.pointer))
            }
            most = max(most, longest)
        }
        return Int(most)
    }

    /// Whether a rule may expand to itself without any character. The engine would then expand it
    /// forever.
    private func beginsWithItself(_ rule: Int, _ path: [String]) throws -> Bool {
        var (pending, seen) = ([rule], Set<Int>())
        while let next = pending.popLast() {
            let inside = rules[next].compactMap(\.onlyRule)
            try spend(1 + inside.count, at: path)
            if inside.contains(rule) { return true }
            pending += inside.filter { seen.insert($0).inserted }
        }
        return false
    }

    /// The length of the shortest text of each rule, in bytes; infinite if its text cannot end. Each
    /// pass finds the lengths of rules that refer to rules of known length.
    private func lengths() throws -> [Double] {
        var (lengths, before) = ([Double](repeating: .infinity, count: rules.count), [Double]())
        while lengths != before {
            before = lengths
            // Goes through the places in both orders, because a place may refer to earlier and to
            // later places.
            for (path, numbers) in places.reversed() + places {
                for number in numbers {
                    let ways = rules[number]
                    lengths[number] = ways.map { $0.length(lengths) }.min() ?? .infinity
                    try spend(ways.map { 2 + 2 * $0.rules.count }.reduce(0, +), at: path)
                }
            }
        }
        return lengths
    }
}

extension ClosedRange<Int> {
    /// The counts of the elements that follow the first `count` elements.
    func without(_ count: Int) -> ClosedRange<Int> {
        Swift.max(0, lowerBound - count)
            ... (upperBound == .max ? .max : Swift.max(0, upperBound - count))
    }
}
