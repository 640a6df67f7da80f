/// A part of a grammar: what text may come in one place.
struct GrammarPart: Sendable {
    /// Atoms in the notation of the grammar engine; "" for no text.
    let notation: String
    let length: Length
    /// The places of the schema whose text it may be with nothing before it.
    var places = [String]()

    /// How many characters, elements or members there are; `most` nil is without a limit.
    struct Counts: Hashable, Sendable {
        var least = 0
        var most: Int?
    }

    /// How short a text can be, in bytes.
    indirect enum Length: Sendable {
        case bytes(Double)
        case sum([Length])
        case least([Length])
        case times(Int, Length)
        /// That of a place of the schema.
        case place(String)
    }

    static let nothing = GrammarPart(notation: "", length: .bytes(0))
    static let comma = common("comma")

    /// The text itself.
    static func quoted(_ text: String) -> GrammarPart {
        GrammarPart(notation: notation(text), length: .bytes(Double(text.utf8.count)))
    }

    /// A text as the notation quotes it.
    static func notation(_ text: String) -> String {
        let marks: Set = [UInt8(ascii: "\\"), UInt8(ascii: "\"")]
        guard text.utf8.contains(where: marks.contains) else { return "\"\(text)\"" }
        return "\"" + text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"") + "\""
    }

    /// A character of a set, in the notation of the grammar engine.
    static func set(_ characters: String) -> GrammarPart {
        GrammarPart(notation: "[\(characters)]", length: .bytes(1))
    }

    static func sequence(_ parts: [GrammarPart]) -> GrammarPart {
        let atoms = parts.map(\.notation).filter { !$0.isEmpty }.joined(separator: " ")
        return GrammarPart(
            notation: atoms.isEmpty ? #""""# : "(\(atoms))", length: .sum(parts.map(\.length)))
    }

    /// `part` between two texts.
    static func between(_ open: String, _ part: GrammarPart, _ close: String) -> GrammarPart {
        sequence([quoted(open), part, quoted(close)])
    }

    /// One of several values.
    static func choice(_ ways: [GrammarPart]) -> GrammarPart {
        GrammarPart(
            notation: "(\(ways.map(\.notation).joined(separator: " | ")))",
            length: .least(ways.map(\.length)), places: ways.flatMap(\.places))
    }

    static func repeated(_ part: GrammarPart, _ counts: Counts) -> GrammarPart {
        guard counts.most != 0 else { return nothing }
        let times =
            counts == Counts() ? "*" : "{\(counts.least),\(counts.most.map(String.init) ?? "")}"
        return GrammarPart(
            notation: part.notation + times, length: .times(counts.least, part.length))
    }

    static func member(_ name: GrammarPart, _ value: GrammarPart) -> GrammarPart {
        sequence([name, common("colon"), value])
    }

    /// What a rule describes that every grammar has.
    static func common(_ name: String) -> GrammarPart {
        GrammarPart(notation: name, length: .bytes(rules[name]?.length ?? 0))
    }

    /// Characters of a string that stand for themselves. The engine compares an ASCII byte with
    /// the last byte of a range's ends, so no range beyond ASCII may begin or end below 0x80.
    static let plainCharacters = #"\x20-\x21\x23-\x5B\x5D-\x7E"# + charactersBeyondASCII
    static let charactersBeyondASCII = #"\u00A0-\uD7FF\uE0A0-\U0010FFFF"#

    /// The rules of every grammar, JSON without spaces but one after a comma or colon, and how long
    /// what they describe is: that without an end as short as it can be, the rest as long.
    fileprivate static let rules: [String: (body: String, length: Double)] = [
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

/// A grammar in the notation of the grammar engine: a rule for each place of a schema that
/// something refers to, and those that their parts need.
final class SchemaGrammar {
    /// The rules; the whole is `root`.
    private(set) var text = GrammarPart.rules.sorted { $0.key < $1.key }
        .map { "\($0.key) ::= \($0.value.body)\n" }.joined()

    /// Steps in which the schema became this: a byte or a part that is looked at, once each time.
    private(set) var steps = 0
    private var ruleCount = 0
    /// By the places that they are at.
    private var parts = [String: GrammarPart]()
    /// How short the text of a place can be, in bytes.
    private var lengths = [String: Double]()

    /// How often all places are read again for their lengths. Each time those that refer to
    /// known ones become known.
    private static let rounds = 32

    /// Steps of a schema within the schema, of a byte of the grammar, which the engine reads too,
    /// and of a set of characters in a `pattern`.
    static let (schema, byte, set) = (256, 3, 512)

    /// - Parameter place: where the schema is read, a JSON pointer
    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` once it is too much
    func spend(_ more: Int, at place: String = "") throws {
        steps += more
        guard steps <= SchemaLimits.work else {
            throw H2OSessionError.invalidSchema(.tooLarge(place: place))
        }
    }

    /// - Parameters:
    ///   - place: a JSON pointer
    ///   - part: what comes there
    ///   - name: of its rule
    func define(_ place: String, as part: GrammarPart, named name: String) {
        parts[place] = part
        text += "\(name) ::= \(part.notation)\n"
    }

    /// One of several texts, as a rule.
    func text(_ ways: [GrammarPart]) throws -> GrammarPart {
        let lengths = ways.map { shortest($0.length) }
        return GrammarPart(
            notation: try rule(ways.map(\.notation).joined(separator: " | ")),
            length: .bytes(lengths.max() ?? 0))
    }

    /// Elements with commas between them.
    func list(_ element: GrammarPart, _ counts: GrammarPart.Counts) throws -> GrammarPart {
        guard counts.most != 0 else { return .nothing }
        // As a rule, since a list has it twice.
        let first = GrammarPart(notation: try rule(element.notation), length: element.length)
        let more = GrammarPart.repeated(
            .sequence([.comma, first]),
            GrammarPart.Counts(least: max(0, counts.least - 1), most: counts.most.map { $0 - 1 }))
        let some = GrammarPart.sequence([first, more]).notation
        let commas = GrammarPart.Length.bytes(Double(counts.least) * 2)
        return GrammarPart(
            notation: counts.least == 0 ? some + "?" : some,
            length: .sum([.times(counts.least, element.length), commas]))
    }

    /// Members in their order, the optional ones with or without.
    func members(_ members: [(part: GrammarPart, isRequired: Bool)]) throws -> GrammarPart {
        // What comes from a member on, where it is the first and where others are before it.
        var (first, more) = (#""""#, #""""#)
        for member in members.reversed() {
            let part = try rule(member.part.notation)
            first = "\(part) \(more)" + (member.isRequired ? "" : " | \(first)")
            more = try rule("comma \(part) \(more)" + (member.isRequired ? "" : " | \(more)"))
        }
        let lengths = members.map {
            GrammarPart.Length.times($0.isRequired ? 1 : 0, $0.part.length)
        }
        let commas = Double(members.filter(\.isRequired).count) * 2
        return GrammarPart(notation: "(\(first))", length: .sum(lengths + [.bytes(commas)]))
    }

    private func rule(_ body: String) throws -> String {
        try spend(Self.byte * body.utf8.count)
        let name = "r\(ruleCount)"
        ruleCount += 1
        text += "\(name) ::= \(body)\n"
        return name
    }

    /// The longest of the shortest texts that any part has, in bytes: what one more character can
    /// make necessary.
    ///
    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` where a place has a part that no text is an
    ///   instance of, or is too large
    func longestEnd() throws -> Int {
        try measure()
        var most = 0.0
        for (place, part) in parts.sorted(by: { $0.key < $1.key }) {
            let longest = longest(part.length)
            try spend(0, at: place)
            guard try !beginsWithItself(place), longest < .infinity else {
                throw H2OSessionError.invalidSchema(.noInstance(place: place))
            }
            guard longest <= Double(SchemaLimits.reply) else {
                throw H2OSessionError.invalidSchema(.tooLarge(place: place))
            }
            most = max(most, longest)
        }
        return Int(most)
    }

    /// Whether a place may be the same place, without a character between: the engine would look
    /// for the beginning for ever.
    private func beginsWithItself(_ place: String) throws -> Bool {
        var (pending, seen) = (parts[place]?.places ?? [], Set<String>())
        while let next = pending.popLast() {
            try spend(1, at: place)
            if next == place { return true }
            if seen.insert(next).inserted { pending += parts[next]?.places ?? [] }
        }
        return false
    }

    private func measure() throws {
        let all = parts.sorted { $0.key < $1.key }
        for round in 0 ..< Self.rounds {
            let before = lengths
            for (place, part) in round.isMultiple(of: 2) ? all : all.reversed() {
                lengths[place] = shortest(part.length)
                try spend(0, at: place)
            }
            if lengths == before { return }
        }
        throw H2OSessionError.invalidSchema(.tooLarge(place: ""))
    }

    /// Infinite for what cannot end.
    private func shortest(_ length: GrammarPart.Length) -> Double {
        steps += 1
        return switch length {
        case .bytes(let count): count
        case .sum(let parts): parts.map(shortest).reduce(0, +)
        case .least(let ways): ways.map(shortest).min() ?? 0
        case .times(let count, let part): count == 0 ? 0 : Double(count) * shortest(part)
        case .place(let place): lengths[place] ?? .infinity
        }
    }

    private func longest(_ length: GrammarPart.Length) -> Double {
        let parts: [GrammarPart.Length] =
            switch length {
            case .bytes, .place: []
            case .sum(let parts), .least(let parts): parts
            case .times(_, let part): [part]
            }
        return parts.map(longest).reduce(shortest(length), max)
    }
}
