/// A part of a grammar: what text may come in one place.
indirect enum GrammarPart: Sendable {
    /// In the notation of the grammar engine; `bytes` are those of its shortest text.
    case atom(String, bytes: Int)
    /// What a rule of the schema's own describes.
    case rule(String)
    case sequence([GrammarPart])
    /// One of several.
    case choice([GrammarPart])
    case times(GrammarPart, Counts)

    /// The number of characters, elements or members; `most` is nil without a limit.
    struct Counts: Hashable, Sendable {
        var least = 0
        var most: Int?

        fileprivate var notation: String {
            switch (least, most) {
            case (0, nil): "*"
            case (0, 1): "?"
            default: "{\(least),\(most.map(String.init) ?? "")}"
            }
        }
    }

    /// No text.
    static let nothing = GrammarPart.sequence([])
    static let comma = common("comma")

    /// What a rule describes that every grammar has.
    static func common(_ name: String) -> GrammarPart {
        .atom(name, bytes: rules[name]?.bytes ?? 0)
    }

    /// The text itself.
    static func quoted(_ text: String) -> GrammarPart {
        .atom(notation(text), bytes: text.utf8.count)
    }

    /// A text in quotes, in the notation.
    static func notation(_ text: String) -> String {
        "\"" + text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"") + "\""
    }

    /// A character of a set, in the notation of the grammar engine.
    static func set(_ characters: String) -> GrammarPart { .atom("[\(characters)]", bytes: 1) }

    /// `part` between two literal texts.
    static func between(_ open: String, _ part: GrammarPart, _ close: String) -> GrammarPart {
        .sequence([quoted(open), part, quoted(close)])
    }

    static func repeated(_ part: GrammarPart, _ counts: Counts) -> GrammarPart {
        counts.most == 0 ? nothing : .times(part, counts)
    }

    static func member(_ name: GrammarPart, _ value: GrammarPart) -> GrammarPart {
        .sequence([name, common("colon"), value])
    }

    fileprivate var notation: String {
        switch self {
        case .atom(let text, _), .rule(let text): text
        case .sequence(let parts) where parts.isEmpty: #""""#
        case .sequence(let parts): "(\(parts.map(\.notation).joined(separator: " ")))"
        case .choice: "(\(body))"
        case .times(let part, let counts): part.notation + counts.notation
        }
    }

    /// What stands behind the name of a rule.
    fileprivate var body: String {
        guard case .choice(let ways) = self else { return notation }
        return ways.map(\.notation).joined(separator: " | ")
    }

    /// The rules whose text it may be with nothing before it.
    fileprivate var firstRules: [String] {
        switch self {
        case .rule(let name): [name]
        case .choice(let ways): ways.flatMap(\.firstRules)
        case .atom, .sequence, .times: []
        }
    }

    /// Characters of a string that need no escape. The engine compares an ASCII byte only with the
    /// last byte of a range's ends, so no range beyond ASCII may begin or end below 0x80.
    static let plainCharacters = #"\x20-\x21\x23-\x5B\x5D-\x7E"# + charactersBeyondASCII
    static let charactersBeyondASCII = #"\u00A0-\uD7FF\uE0A0-\U0010FFFF"#

    /// The rules of every grammar, JSON without spaces but one after a comma or colon, and how long
    /// what they describe is: that without an end as short as it can be, the rest as long.
    fileprivate static let rules: [String: (body: String, bytes: Int)] = [
        "any": ("string | number | boolean | null | array | object", 2),
        "array": (#""[" (any (comma any)*)? "]""#, 2),
        "boolean": (#""true" | "false""#, 4),
        "char": (#"[\#(plainCharacters)] | "\\" ["\\/bfnrt]"#, 2),
        "colon": (#"":" | ": ""#, 2),
        "comma": (#""," | ", ""#, 2),
        "integer": (#""0" | "-"? [1-9] [0-9]{0,14}"#, 16),
        "member": ("string colon any", 6),
        "null": (#""null""#, 4),
        "number": (#""-"? ("0" | [1-9] [0-9]{0,14}) ("." [0-9]{1,9})?"#, 17),
        "object": (#""{" (member (comma member)*)? "}""#, 2),
        "string": (#""\"" char* "\"""#, 2),
    ]
}

/// A grammar in the notation of the grammar engine: it has a rule for each place of a schema that a
/// reference names, and the rules that their parts need.
final class SchemaGrammar {
    /// All rules; the start rule is `root`.
    private(set) var text = GrammarPart.rules.sorted { $0.key < $1.key }
        .map { "\($0.key) ::= \($0.value.body)\n" }.joined()

    /// The work so far: the bytes and parts that were read, each time they were read.
    private(set) var steps = 0
    /// By the names of their rules.
    private var parts = [String: GrammarPart]()
    /// The rules of each place, its own last.
    private var places = [(pointer: String, names: [String])]()
    /// Rules of the place that is read.
    private var newNames = [String]()
    /// How short the text of a rule can be, in bytes, as far as it is known.
    private var lengths = [String: Double]()

    /// Steps of a schema within the schema, of a byte of the grammar, which the engine reads too,
    /// and of a set of characters in a `pattern`.
    static let (schema, byte, set) = (256, 3, 512)

    /// - Parameter place: the place of the schema that is read, a JSON pointer
    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` if the work exceeds its limit
    func spend(_ more: Int, at place: String = "") throws {
        steps += more
        guard steps <= SchemaLimits.work else {
            throw H2OSessionError.invalidSchema(.tooLarge(place: place))
        }
    }

    /// Ends a place, which is a JSON pointer, with the rule for the whole of it.
    func define(_ place: String, as part: GrammarPart, named name: String) {
        add(part, named: name)
        places.append((place, newNames))
        newNames = []
    }

    /// The part as a rule, for one that is needed twice or must not be repeated in the text.
    func rule(_ part: GrammarPart) throws -> GrammarPart {
        let name = "r\(parts.count)"
        add(part, named: name)
        try spend(Self.byte * part.body.utf8.count)
        return .rule(name)
    }

    private func add(_ part: GrammarPart, named name: String) {
        parts[name] = part
        newNames.append(name)
        text += "\(name) ::= \(part.body)\n"
    }

    /// Elements with commas between them.
    func list(_ element: GrammarPart, _ counts: GrammarPart.Counts) throws -> GrammarPart {
        guard counts.most != 0 else { return .nothing }
        let first = try rule(element)
        let more = GrammarPart.repeated(
            .sequence([.comma, first]),
            GrammarPart.Counts(least: max(0, counts.least - 1), most: counts.most.map { $0 - 1 }))
        let some = GrammarPart.sequence([first, more])
        return counts.least == 0 ? .times(some, GrammarPart.Counts(most: 1)) : some
    }

    /// The members of an object in their order; optional members may be missing.
    func members(_ members: [(part: GrammarPart, isRequired: Bool)]) throws -> GrammarPart {
        // What comes from a member on, where it is the first and where others are before it.
        var (first, more) = ([GrammarPart.nothing], GrammarPart.nothing)
        for member in members.reversed() {
            let part = try rule(member.part)
            first = [.sequence([part, more])] + (member.isRequired ? [] : first)
            let next = GrammarPart.sequence([.comma, part, more])
            more = try rule(.choice([next] + (member.isRequired ? [] : [more])))
        }
        return .choice(first)
    }

    /// Texts that begin alike, as rules that share their beginnings: the engine takes more than is
    /// described where alternatives of one rule begin alike (xgrammar 0.1.30).
    ///
    /// - Parameter ways: each in the notation of the grammar engine, one character a string
    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` for what is too large
    func sharing(_ ways: [[String]]) throws -> GrammarPart {
        // A grammar has at least as many bytes of them.
        try spend(4 * Self.byte * ways.map(\.count).reduce(0, +))
        return try sharing(ways.map { $0[...] }, depth: 0)
    }

    private func sharing(_ ways: [ArraySlice<String>], depth: Int) throws -> GrammarPart {
        guard depth <= SchemaLimits.nesting else {
            throw H2OSessionError.invalidSchema(.tooLarge(place: ""))
        }
        var firsts = [String]()
        var following = [String: [ArraySlice<String>]]()
        for way in ways {
            let first = way.first ?? #""""#
            if following[first] == nil { firsts.append(first) }
            following[first, default: []].append(way.dropFirst())
        }
        let branches = try firsts.map { first in
            var rest = following[first] ?? []
            var common = [GrammarPart.atom(first, bytes: 1)]
            // What all have in common takes no rule.
            while let next = rest.first?.first, rest.allSatisfy({ $0.first == next }) {
                common.append(.atom(next, bytes: 1))
                rest = rest.map { $0.dropFirst() }
            }
            if !rest.allSatisfy(\.isEmpty) { common.append(try sharing(rest, depth: depth + 1)) }
            return GrammarPart.sequence(common)
        }
        return branches.count == 1 ? branches[0] : try rule(.choice(branches))
    }

    /// The longest of the shortest texts of all parts, in bytes: this many bytes can become
    /// necessary with one more character.
    ///
    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` if a part has no instance, or is too large
    func longestEnd() throws -> Int {
        try measure()
        var most = 0.0
        for (place, names) in places {
            let longest = names.map { length(parts[$0] ?? .nothing).longest }.max() ?? 0
            try spend(0, at: place)
            guard try !beginsWithItself(names[names.count - 1], place), longest < .infinity else {
                throw H2OSessionError.invalidSchema(.noInstance(place: place))
            }
            guard longest <= Double(SchemaLimits.reply) else {
                throw H2OSessionError.invalidSchema(.tooLarge(place: place))
            }
            most = max(most, longest)
        }
        return Int(most)
    }

    /// Whether a rule may be the same rule, without a character between: the engine would look for
    /// the beginning for ever.
    private func beginsWithItself(_ rule: String, _ place: String) throws -> Bool {
        var (pending, seen) = (parts[rule]?.firstRules ?? [], Set<String>())
        while let next = pending.popLast() {
            try spend(1, at: place)
            if next == rule { return true }
            if seen.insert(next).inserted { pending += parts[next]?.firstRules ?? [] }
        }
        return false
    }

    /// Finds the lengths of all rules: each time those that refer to known ones become known.
    private func measure() throws {
        var before: [String: Double]?
        while lengths != before {
            before = lengths
            // In both orders, as a place may refer to earlier and to later ones.
            for (place, names) in places.reversed() + places {
                for name in names { lengths[name] = length(parts[name] ?? .nothing).shortest }
                try spend(0, at: place)
            }
        }
    }

    /// How short the text of a part can be, infinite for what cannot end, and the longest of that
    /// of all parts within it; in bytes.
    private func length(_ part: GrammarPart) -> (shortest: Double, longest: Double) {
        steps += 1
        switch part {
        case .atom(_, let bytes): return (Double(bytes), Double(bytes))
        case .rule(let name):
            let length = lengths[name] ?? .infinity
            return (length, length)
        case .sequence(let parts):
            let lengths = parts.map(length)
            let sum = lengths.map(\.shortest).reduce(0, +)
            return (sum, lengths.map(\.longest).reduce(sum, max))
        case .choice(let ways):
            let lengths = ways.map(length)
            return (lengths.map(\.shortest).min() ?? 0, lengths.map(\.longest).max() ?? 0)
        case .times(let part, let counts):
            let (shortest, longest) = length(part)
            let all = counts.least == 0 ? 0 : Double(counts.least) * shortest
            return (all, max(all, longest))
        }
    }
}
