/// A part of a grammar: what text may come in one place.
indirect enum GrammarPart: Hashable, Sendable {
    /// Text in the notation of the grammar engine, and its number of characters.
    case plain(String, length: Int)
    case sequence([GrammarPart])
    /// One of several texts, none of which refers to a rule.
    case text([GrammarPart])
    /// One of several values.
    case choice([GrammarPart])
    case repeated(GrammarPart, Counts)
    /// Elements with commas between them.
    case list(GrammarPart, Counts)
    /// Members in their order, the optional ones with or without.
    case members([Member])
    /// What is elsewhere: a place of the schema by its JSON pointer, or one of `common`.
    case rule(String)

    /// How many characters, elements or members there are; `most` nil is without a limit.
    struct Counts: Hashable, Sendable {
        var least = 0
        var most: Int?
    }

    struct Member: Hashable, Sendable {
        /// Name, colon and value.
        let part: GrammarPart
        var required: Bool
    }

    static let comma = GrammarPart.rule("comma")

    /// The text itself.
    static func quoted(_ text: String) -> GrammarPart {
        .plain(notation(text), length: text.utf8.count)
    }

    /// A text as the notation quotes it.
    static func notation(_ text: String) -> String {
        let marks: Set = [UInt8(ascii: "\\"), UInt8(ascii: "\"")]
        guard text.utf8.contains(where: marks.contains) else { return "\"\(text)\"" }
        return "\"" + text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"") + "\""
    }

    /// A character of a set, in the notation of the grammar engine.
    static func set(_ characters: String) -> GrammarPart { .plain("[\(characters)]", length: 1) }

    /// `part` between two texts.
    static func between(_ open: String, _ part: GrammarPart, _ close: String) -> GrammarPart {
        .sequence([quoted(open), part, quoted(close)])
    }

    static func member(_ name: GrammarPart, _ value: GrammarPart) -> GrammarPart {
        .sequence([name, .rule("colon"), value])
    }

    /// Characters of a string that stand for themselves. The engine compares an ASCII byte with
    /// the last byte of a range's ends, so no range beyond ASCII may begin or end below 0x80.
    static let plainCharacters = #"\x20-\x21\x23-\x5B\x5D-\x7E"# + charactersBeyondASCII
    static let charactersBeyondASCII = #"\u00A0-\uD7FF\uE0A0-\U0010FFFF"#

    /// Rules that every grammar has: JSON without spaces but one after a comma or colon.
    static let common: [String: GrammarPart] = [
        "any": .choice(["string", "number", "boolean", "null", "array", "object"].map(rule)),
        "null": quoted("null"),
        "boolean": .choice([quoted("true"), quoted("false")]),
        "string": between("\"", .repeated(.rule("char"), Counts()), "\""),
        "char": .text([set(plainCharacters), .plain(#""\\" ["\\/bfnrt]"#, length: 2)]),
        "number": .plain(#""-"? ("0" | [1-9] [0-9]{0,14}) ("." [0-9]{1,9})?"#, length: 17),
        "integer": .plain(#""0" | "-"? [1-9] [0-9]{0,14}"#, length: 16),
        "array": between("[", .list(.rule("any"), Counts()), "]"),
        "object": between("{", .list(member(.rule("string"), .rule("any")), Counts()), "}"),
        "comma": .plain(#""," | ", ""#, length: 2),
        "colon": .plain(#"":" | ": ""#, length: 2),
    ]

    /// The parts that this one is made of, where they may refer to rules.
    fileprivate var parts: [GrammarPart] {
        switch self {
        case .plain, .text, .rule: []
        case .sequence(let parts), .choice(let parts): parts
        case .repeated(let part, _), .list(let part, _): [part]
        case .members(let members): members.map(\.part)
        }
    }
}

/// Writes the parts of a grammar in the notation of the grammar engine: one rule for each place
/// that something refers to.
struct SchemaGrammar {
    /// The rules; the first is `root`.
    var text: String { rules.map { "\($0.name) ::= \($0.body)\n" }.joined() }
    /// The longest of the shortest values that any part has, in bytes: what one more character
    /// can make necessary.
    private(set) var longestEnd = 0.0

    private let places: [String: GrammarPart]
    private var names = ["#": "root"]
    private let work: SchemaWork
    private var rules = [(name: String, body: String)]()
    /// How short the text of a place can be, in bytes; one that must contain itself has none.
    private var lengths = [String: Double]()

    /// How often all places are read again for their lengths. Each time those that refer to
    /// known ones become known.
    private static let rounds = 32

    /// - Parameter schemas: by JSON pointer; "#" is the whole
    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` for one that is too large, or that no
    ///   value is an instance of
    init(_ schemas: [String: GrammarPart], _ work: SchemaWork) throws {
        self.work = work
        let pointers = schemas.keys.sorted()
        for (index, pointer) in pointers.dropFirst().enumerated() { names[pointer] = "d\(index)" }
        places = schemas.merging(GrammarPart.common) { schema, _ in schema }
        try measure()
        for pointer in pointers {
            guard let part = schemas[pointer] else { continue }
            let place = String(pointer.dropFirst())
            // The engine would look for the beginning for ever.
            guard !beginsWithItself(pointer) else {
                throw H2OSessionError.invalidSchema(.noInstance(place: place))
            }
            longestEnd = max(longestEnd, try longest(part, at: place))
            try work.spend(0, at: place)
            let rule = rules.count
            rules.append((names[pointer] ?? "", ""))
            rules[rule].body = try notation(part)
        }
        for (name, part) in GrammarPart.common.sorted(by: { $0.key < $1.key }) {
            rules.append((name, try notation(part)))
        }
    }

    /// A part as one atom of a rule.
    private mutating func notation(_ part: GrammarPart) throws -> String {
        switch part {
        case .plain(let notation, _): return notation
        case .sequence(let parts):
            let atoms = try parts.map { try notation($0) }.filter { !$0.isEmpty }
            return atoms.isEmpty ? #""""# : "(\(atoms.joined(separator: " ")))"
        case .text(let ways):
            return try rule(ways.map { try notation($0) }.joined(separator: " | "))
        case .choice(let ways): return either(try ways.map { try notation($0) })
        case .repeated(let part, let counts):
            return counts.most == 0 ? "" : try repeated(notation(part), counts)
        case .list(let element, let counts):
            guard counts.most != 0 else { return "" }
            // As a rule, since a list has it twice.
            let element = try rule(notation(element))
            let more = GrammarPart.Counts(
                least: max(0, counts.least - 1), most: counts.most.map { $0 - 1 })
            let some = "(\(element) \(repeated("(comma \(element))", more)))"
            return counts.least == 0 ? some + "?" : some
        case .members(let members): return try notation(members)
        case .rule(let name): return names[name] ?? name
        }
    }

    private mutating func notation(_ members: [GrammarPart.Member]) throws -> String {
        let parts = try members.map { try rule(notation($0.part)) }
        // What may follow the members up to an index.
        var following = [#""""#]
        for (member, part) in zip(members, parts).reversed() {
            let with = "comma \(part) \(following[0])"
            following.insert(try rule(member.required ? with : "\(with) | \(following[0])"), at: 0)
        }
        var ways = [String]()
        for (index, member) in members.enumerated() {
            ways.append("\(parts[index]) \(following[index + 1])")
            if member.required { return either(ways) }
        }
        return either(ways + [#""""#])
    }

    private func either(_ ways: [String]) -> String { "(\(ways.joined(separator: " | ")))" }

    private func repeated(_ what: String, _ counts: GrammarPart.Counts) -> String {
        if counts == GrammarPart.Counts() { return what + "*" }
        return "\(what){\(counts.least),\(counts.most.map(String.init) ?? "")}"
    }

    private mutating func rule(_ body: String) throws -> String {
        try work.spend(SchemaWork.byte * body.utf8.count)
        let name = "r\(rules.count)"
        rules.append((name, body))
        return name
    }

    /// Whether a place may be the same place, without a character between.
    private func beginsWithItself(_ pointer: String) -> Bool {
        var (pending, seen) = ([places[pointer]].compactMap { $0 }, Set<String>())
        while let part = pending.popLast() {
            switch part {
            case .choice(let ways): pending += ways
            case .rule(pointer): return true
            case .rule(let name):
                if seen.insert(name).inserted { pending += [places[name]].compactMap { $0 } }
            default: break
            }
        }
        return false
    }

    private mutating func measure() throws {
        let all = places.sorted { $0.key < $1.key }
        for round in 0 ..< Self.rounds {
            let before = lengths
            for (name, part) in round.isMultiple(of: 2) ? all : all.reversed() {
                lengths[name] = length(part)
                try work.spend(0, at: String(name.dropFirst()))
            }
            if lengths == before { return }
        }
        throw H2OSessionError.invalidSchema(.tooLarge(place: ""))
    }

    /// nil for what cannot end, or refers to a place that is not known.
    private func length(_ part: GrammarPart) -> Double? {
        work.count(1)
        return switch part {
        case .plain(_, let length): Double(length)
        case .sequence(let parts): sum(parts)
        case .text(let ways): ways.compactMap(length).max()
        case .choice(let ways): ways.compactMap(length).min()
        case .repeated(let part, let counts): times(counts.least, length(part))
        case .list(let part, let counts): times(counts.least, length(part).map { $0 + 2 })
        case .members(let members):
            sum(members.filter(\.required).map { .sequence([$0.part, GrammarPart.comma]) })
        case .rule(let name): lengths[name]
        }
    }

    private func sum(_ parts: [GrammarPart]) -> Double? {
        parts.reduce(0) { sum, part in sum.flatMap { sum in length(part).map { sum + $0 } } }
    }

    private func times(_ count: Int, _ length: Double?) -> Double? {
        count == 0 ? 0 : length.map { $0 * Double(count) }
    }

    private func longest(_ part: GrammarPart, at place: String) throws -> Double {
        guard let length = length(part) else {
            throw H2OSessionError.invalidSchema(.noInstance(place: place))
        }
        guard length <= Double(SchemaLimits.reply) else {
            throw H2OSessionError.invalidSchema(.tooLarge(place: place))
        }
        return try part.parts.reduce(length) { max($0, try longest($1, at: place)) }
    }
}
