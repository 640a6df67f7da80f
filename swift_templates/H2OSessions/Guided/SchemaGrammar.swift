/// Writes what schemas describe as a grammar: one rule for each place that something refers to,
/// JSON without spaces but one after a comma or colon.
struct SchemaGrammar {
    /// The rules, in the notation of the grammar engine; the first is `root`.
    var text: String { rules.map { "\($0.name) ::= \($0.body)\n" }.joined() }

    /// Characters of a string that stand for themselves. The engine compares an ASCII byte with
    /// the last byte of a range's ends, so no range beyond ASCII may begin or end below 0x80.
    static let plain = #"\x20-\x21\x23-\x5B\x5D-\x7E\u00A0-\uD7FF\uE0A0-\U0010FFFF"#

    private var rules = [(name: String, body: String)]()
    private let names: [String: String]

    init(_ forms: SchemaForms) {
        let others = forms.keys.filter { $0 != "#" }.sorted()
        names = Dictionary(
            uniqueKeysWithValues: [("#", "root")] + others.enumerated().map { ($1, "d\($0)") })
        for pointer in ["#"] + others {
            guard let name = names[pointer], let form = forms[pointer] else { continue }
            let place = rules.count
            rules.append((name, ""))
            rules[place].body = expression(form)
        }
        rules += [
            ("any", #"string | number | "true" | "false" | "null" | list | map"#),
            ("number", DigitRange.anyNumber),
            ("list", #""[" (any (comma any)*)? "]""#),
            ("map", #""{" (string colon any (comma string colon any)*)? "}""#),
            ("string", #""\"" char* "\"""#),
            ("char", #"[\#(Self.plain)] | "\\" ["\\/bfnrt]"#),
            ("comma", #""," | ", ""#),
            ("colon", #"":" | ": ""#),
        ]
    }

    /// A text as the notation quotes it.
    static func quoted(_ text: String) -> String {
        "\"" + text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"") + "\""
    }

    private mutating func expression(_ form: SchemaForm) -> String {
        switch form {
        case .any: return "any"
        case .literals(let values):
            return tree(values.map { $0.text.unicodeScalars.map { Self.quoted(String($0)) } })
        case .string(let counts): return #"("\"" \#(repeated("char", counts)) "\"")"#
        case .matching(let grammar): return #"("\"" (\#(grammar)) "\"")"#
        case .number(let range): return range.ways.map { tree($0) } ?? "number"
        case .array(let first, let rest, let counts):
            let first = first.map { expression($0) }
            return list("[", first, rest.map { expression($0) }, counts, "]")
        case .object(let properties): return object(properties)
        case .map(let value, let counts):
            let member = rule("string colon \(expression(value))")
            return list("{", [], member, counts, "}")
        case .choice(let all, _): return either(all.map { expression($0) })
        case .reference(let pointer): return names[pointer] ?? "any"
        }
    }

    /// Elements with commas between them: the first, then as many of the rest as are wanted.
    private func list(
        _ open: String, _ first: [String], _ rest: String?, _ counts: SchemaForm.Counts,
        _ close: String
    ) -> String {
        var elements = first.joined(separator: " comma ")
        let left = SchemaForm.Counts(
            least: max(0, counts.least - first.count), most: counts.most.map { $0 - first.count })
        if let rest, left.most != 0 {
            if first.isEmpty {
                let more = SchemaForm.Counts(
                    least: max(0, left.least - 1), most: left.most.map { $0 - 1 })
                let some = "\(rest) \(repeated("(comma \(rest))", more))"
                elements = left.least == 0 ? "(\(some))?" : some
            } else {
                elements += " " + repeated("(comma \(rest))", left)
            }
        }
        return "(\(Self.quoted(open)) \(elements) \(Self.quoted(close)))"
    }

    /// Members in their order, the optional ones with or without.
    private mutating func object(_ properties: [SchemaForm.Property]) -> String {
        let members = properties.map {
            rule("\(Self.quoted(OrderedJSON.string($0.name).text)) colon \(expression($0.form))")
        }
        // What may follow the members up to an index.
        var following = [#""""#]
        for (property, member) in zip(properties, members).reversed() {
            let with = "comma \(member) \(following[0])"
            following.insert(rule(property.required ? with : "\(with) | \(following[0])"), at: 0)
        }
        var ways = [String]()
        for (index, property) in properties.enumerated() {
            ways.append("\(members[index]) \(following[index + 1])")
            if property.required { break }
        }
        if !properties.contains(where: \.required) { ways.append(#""""#) }
        return #"("{" \#(either(ways)) "}")"#
    }

    /// One of some sequences. Those that begin alike share a rule for that: the engine takes
    /// more than is described where alternatives of one rule begin alike (xgrammar 0.1.30).
    private mutating func tree(_ ways: [some Collection<String>]) -> String {
        var firsts = [String]()
        var following = [String: [ArraySlice<String>]]()
        for way in ways {
            let first = way.first ?? #""""#
            if following[first] == nil { firsts.append(first) }
            following[first, default: []].append(Array(way)[...].dropFirst())
        }
        var branches = [String]()
        for first in firsts {
            let rest = following[first] ?? []
            branches.append(rest.allSatisfy(\.isEmpty) ? first : "\(first) \(tree(rest))")
        }
        return branches.count == 1 ? branches[0] : rule(branches.joined(separator: " | "))
    }

    private func either(_ ways: [String]) -> String { "(\(ways.joined(separator: " | ")))" }

    private func repeated(_ what: String, _ counts: SchemaForm.Counts) -> String {
        if counts == SchemaForm.Counts() { return what + "*" }
        return "\(what){\(counts.least),\(counts.most.map(String.init) ?? "")}"
    }

    private mutating func rule(_ body: String) -> String {
        let name = "r\(rules.count)"
        rules.append((name, body))
        return name
    }
}
