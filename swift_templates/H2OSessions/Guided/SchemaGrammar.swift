/// A part of a grammar. It describes the texts that are allowed in one place.
indirect enum GrammarPart: Sendable {
    /// A text in the notation of the grammar engine; `bytes` is the length of the shortest text that
    /// it describes.
    case atom(String, bytes: Int)
    /// A reference to a rule of this schema, by name.
    case rule(String)
    case sequence([GrammarPart])
    /// Exactly one of several parts.
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

    /// A reference to one of the rules that every grammar has.
    static func common(_ name: String) -> GrammarPart {
        .atom(name, bytes: rules[name]?.bytes ?? 0)
    }

    /// A part that describes only this text.
    static func quoted(_ text: String) -> GrammarPart {
        .atom(notation(text), bytes: text.utf8.count)
    }

    /// The text in quotes, as the notation of the grammar engine writes it.
    static func notation(_ text: String) -> String {
        "\"" + text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"") + "\""
    }

    /// One character of a set, which is in the notation of the grammar engine.
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

    /// The right side of a rule for this part.
    fileprivate var body: String {
        guard case .choice(let ways) = self else { return notation }
        return ways.map(\.notation).joined(separator: " | ")
    }

    /// The rules that this part may consist of, without any other text.
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

    /// The rules that every grammar has. They describe JSON without spaces, except for one space
    /// after a comma or colon. `bytes` is the length of a text of the rule: for rules without a
    /// longest text the shortest length, for others the longest.
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

/// A grammar in the notation of the grammar engine. It has a rule for each place of a schema that a
/// reference names, and rules for parts of these places.
final class SchemaGrammar {
    /// All rules; the start rule is `root`.
    private(set) var text = GrammarPart.rules.sorted { $0.key < $1.key }
        .map { "\($0.key) ::= \($0.value.body)\n" }.joined()

    /// The number of steps of work so far. A part that is read twice counts twice.
    private(set) var steps = 0
    /// The parts, by the names of their rules.
    private var parts = [String: GrammarPart]()
    /// The names of the rules of each place; the last name is that of the rule for the whole place.
    private var places = [(pointer: String, names: [String])]()
    /// The names of the rules of the place that is being read.
    private var newNames = [String]()
    /// The length of the shortest text of each rule, in bytes; rules of unknown length are missing.
    private var lengths = [String: Double]()

    /// The steps of work for a schema inside the schema, for a byte of the grammar (which the engine
    /// reads too), and for a set of characters in a `pattern`.
    static let (schema, byte, set) = (256, 3, 512)

    /// Adds steps of work.
    ///
    /// - Parameter place: the place of the schema that is being read, a JSON pointer
    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` if the work exceeds ``SchemaLimits/work``
    func spend(_ more: Int, at place: String = "") throws {
        steps += more
        guard steps <= SchemaLimits.work else {
            throw H2OSessionError.invalidSchema(.tooLarge(place: place))
        }
    }

    /// Adds the rule for a whole place (a JSON pointer), after the rules for its parts.
    func define(_ place: String, as part: GrammarPart, named name: String) {
        add(part, named: name)
        places.append((place, newNames))
        newNames = []
    }

    /// Adds a rule for a part that is used more than once, and returns a reference to the rule.
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
        // The possible texts from a member on: `first` if no member is before it, `more` if one is.
        var (first, more) = ([GrammarPart.nothing], GrammarPart.nothing)
        for member in members.reversed() {
            let part = try rule(member.part)
            first = [.sequence([part, more])] + (member.isRequired ? [] : first)
            let next = GrammarPart.sequence([.comma, part, more])
            more = try rule(.choice([next] + (member.isRequired ? [] : [more])))
        }
        return .choice(first)
    }

    /// Returns a part that describes all `ways`, in which alternatives never begin with the same
    /// character. If alternatives of one rule begin with the same character, the engine also accepts
    /// texts that the rule does not describe (xgrammar 0.1.30).
    ///
    /// - Parameter ways: the texts; each string is one character in the notation of the grammar
    ///   engine
    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` if the work or the nesting exceeds its limit
    func sharing(_ ways: [[String]]) throws -> GrammarPart {
        // The grammar gets at least four bytes for each of these characters.
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
            // Characters that all texts have in common need no rule.
            while let next = rest.first?.first, rest.allSatisfy({ $0.first == next }) {
                common.append(.atom(next, bytes: 1))
                rest = rest.map { $0.dropFirst() }
            }
            if !rest.allSatisfy(\.isEmpty) { common.append(try sharing(rest, depth: depth + 1)) }
            return GrammarPart.sequence(common)
        }
        return branches.count == 1 ? branches[0] : try rule(.choice(branches))
    }

    /// Returns how many bytes one more character can add to the shortest end of a reply. This is the
    /// largest length, over all parts, of a part's shortest text.
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

    /// Whether a rule may expand to itself without any character. The engine would then expand it
    /// forever.
    private func beginsWithItself(_ rule: String, _ place: String) throws -> Bool {
        var (pending, seen) = (parts[rule]?.firstRules ?? [], Set<String>())
        while let next = pending.popLast() {
            try spend(1, at: place)
            if next == rule { return true }
            if seen.insert(next).inserted { pending += parts[next]?.firstRules ?? [] }
        }
        return false
    }

    /// Finds the lengths of all rules. Each pass finds the lengths of rules that refer to rules of
    /// known length.
    private func measure() throws {
        var before: [String: Double]?
        while lengths != before {
            before = lengths
            // Goes through the places in both orders, because a place may refer to earlier and to
            // later places.
            for (place, names) in places.reversed() + places {
                for name in names { lengths[name] = length(parts[name] ?? .nothing).shortest }
                try spend(0, at: place)
            }
        }
    }

    /// The length of the part's shortest text, and the largest such length among the part and the
    /// parts inside it; in bytes. Infinite for a part whose text cannot end.
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
