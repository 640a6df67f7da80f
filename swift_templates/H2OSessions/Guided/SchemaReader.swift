import Foundation

/// Limits of a schema. With them, refusing a schema takes only milliseconds and no more stack than a
/// thread of Apple's systems has, and the engine compiles other schemas in seconds.
enum SchemaLimits {
    /// Bytes of the schema's text.
    static let bytes = 256 << 10
    /// The greatest depth of brackets in the text, and of groups in a pattern.
    static let nesting = 48
    /// Schemas in one list, and members of one object.
    static let ways = 256
    /// Characters, elements or members that the schema requires in one place.
    static let count = 65536
    /// Characters of one `pattern`.
    static let pattern = 1024
    /// Bytes of the shortest text of any part of the schema.
    static let reply = 1 << 20
    /// Steps of work for a schema.
    static let work = 1 << 20
}

/// The steps of work for the parts of a schema, which grow with the time that the engine takes.
private enum SchemaWork {
    static let schema = 256
    /// A byte of a listed value, and a pair of members of one object.
    static let (byte, pair) = (64, 16)
    /// Strings and numbers with limits, and a set of characters.
    static let (length, integer, number, set) = (1 << 14, 1 << 13, 1 << 15, 1 << 13)
}

/// A schema for the grammar engine.
struct SchemaForm {
    let json: String
    /// The length of the shortest instance in bytes, if those of the definitions are known.
    let shortest: ([Double]) -> Double
    /// The definitions of which the whole value may be an instance.
    var wholes = [Int]()

    /// Any value.
    static var any: SchemaForm { SchemaForm("{}", 1) }

    init(_ json: String, _ bytes: Int) { (self.json, shortest) = (json, { _ in Double(bytes) }) }

    init(_ json: String, wholes: [Int] = [], shortest: @escaping ([Double]) -> Double) {
        (self.json, self.wholes, self.shortest) = (json, wholes, shortest)
    }
}

/// Writes a JSON Schema for the grammar engine: with only the keywords that the engine follows, in
/// the forms in which it follows them (xgrammar 0.1.30). Refuses a schema with other keywords that
/// say which values are valid.
struct SchemaReader {
    private let root: SchemaNode
    /// The steps of work so far.
    private(set) var steps = 0
    /// The schemas that references name, their numbers, and what is written of them.
    private var definitions: [SchemaNode]
    private var numbers: [[String]: Int] = [[]: 0]
    private var forms = [SchemaForm]()
    /// What the patterns' sets of characters match.
    private var sets = [String: String]()

    /// - Throws: ``H2OSessionError/invalidSchema(_:)``
    init(_ text: String) throws {
        root = SchemaNode(json: try OrderedJSON(parsing: text))
        definitions = [root]
    }

    /// Returns the schema for the engine, and the bytes of its shortest instance.
    ///
    /// - Throws: ``H2OSessionError/invalidSchema(_:)``
    mutating func read() throws -> (json: String, shortest: Int) {
        while forms.count < definitions.count { forms.append(try form(definitions[forms.count])) }
        let shortest = try shortest()
        let members = forms.enumerated().map { "\"d\($0)\":\($1.json)" }.joined(separator: ",")
        return (##"{"$ref":"#/$defs/d0","$defs":{\##(members)}}"##, shortest)
    }

    private mutating func spend(_ more: Int, at node: SchemaNode) throws {
        steps += more
        guard steps <= SchemaLimits.work else { throw node.tooLarge }
    }

    /// The length of the shortest instance. Each pass finds the lengths of definitions that refer to
    /// definitions of known length.
    ///
    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` if a definition has no instance, is too large,
    ///   or may be itself again without any character
    private mutating func shortest() throws -> Int {
        var lengths = [Double](repeating: .infinity, count: forms.count)
        var hasBegin = lengths.map { _ in false }
        var (before, hadBegin) = ([Double](), [Bool]())
        while lengths != before || hasBegin != hadBegin {
            (before, hadBegin) = (lengths, hasBegin)
            try spend(steps / 16, at: root)
            // In both orders, because a schema may refer to earlier and to later ones.
            for number in forms.indices.reversed() + Array(forms.indices) {
                lengths[number] = forms[number].shortest(lengths)
                hasBegin[number] = forms[number].wholes.allSatisfy { hasBegin[$0] }
            }
        }
        for (number, node) in definitions.enumerated() {
            guard hasBegin[number], lengths[number] < .infinity else { throw node.noInstance }
            guard lengths[number] <= Double(SchemaLimits.reply) else { throw node.tooLarge }
        }
        return Int(lengths[0])
    }

    /// Keywords that describe a value completely, because the engine ignores the keywords beside
    /// them; with those that are followed here.
    private static let valueKeywords: KeyValuePairs<String, [String]> = [
        "$ref": [], "const": ["type"], "enum": ["type"], "anyOf": [], "oneOf": [], "allOf": [],
    ]
    private static let families: KeyValuePairs<String, [String]> = [
        "string": ["pattern", "minLength", "maxLength"],
        "number": ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"],
        "array": ["items", "prefixItems", "minItems", "maxItems"],
        "object": [
            "properties", "required", "additionalProperties", "minProperties", "maxProperties",
        ],
    ]
    private static let types = [
        "string", "number", "integer", "boolean", "null", "array", "object",
    ]
    /// Keywords that the engine ignores, or follows only in part.
    private static let refused = [
        "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies",
        "patternProperties", "propertyNames", "unevaluatedProperties", "unevaluatedItems",
        "additionalItems", "contains", "minContains", "maxContains", "multipleOf", "$dynamicRef",
        "$recursiveRef",
    ]

    private mutating func form(_ node: SchemaNode) throws -> SchemaForm {
        try spend(SchemaWork.schema, at: node)
        if node.isWord("true") { return .any }
        if node.isWord("false") { throw node.noInstance }
        guard node.json.isOf(type: "object") else { throw node.wrong("an object, true or false") }
        if let keyword = Self.refused.first(where: node.has) { throw node.unsupported(keyword) }
        if node["uniqueItems"]?.isWord("true") == true { throw node.unsupported("uniqueItems") }
        guard let (keyword, beside) = Self.valueKeywords.first(where: { node.has($0.key) }) else {
            let types = try types(of: node)
            return types.isEmpty ? .any : choice(of: try types.map { try form(node, as: $0) })
        }
        let others = Self.families.flatMap(\.value) + Self.valueKeywords.map(\.key) + ["type"]
        if let other = others.first(where: { node.has($0) && !(beside + [keyword]).contains($0) }) {
            throw node.unsupported(other)
        }
        switch keyword {
        case "$ref": return try reference(node)
        case "const": return try listed([node["const"] ?? node], node)
        case "enum": return try listed(node["enum"]?.elements() ?? [], node)
        default:
            let all = try schemas(node[keyword])
            guard keyword != "allOf" || all.count == 1 else { throw node.unsupported("allOf") }
            return choice(of: all)
        }
    }

    private func choice(of forms: [SchemaForm]) -> SchemaForm {
        guard forms.count > 1 else { return forms[0] }
        let ways = forms.map(\.json).joined(separator: ",")
        return SchemaForm("{\"anyOf\":[\(ways)]}", wholes: forms.flatMap(\.wholes)) { known in
            let lengths = forms.map { $0.shortest(known) }
            let tooLong = lengths.first { Double(SchemaLimits.reply) < $0 && $0 < .infinity }
            return tooLong ?? lengths.min() ?? 0
        }
    }

    /// The engine cannot read all references, so each schema that one names becomes a definition.
    private mutating func reference(_ node: SchemaNode) throws -> SchemaForm {
        let schema = try node.target(in: root) { try spend($0.json.size / 4, at: node) }
        let number = numbers[schema.path] ?? definitions.count
        if number == definitions.count {
            numbers[schema.path] = number
            definitions.append(schema)
        }
        return SchemaForm(##"{"$ref":"#/$defs/d\##(number)"}"##, wholes: [number]) { $0[number] }
    }

    private mutating func listed(_ values: [SchemaNode], _ node: SchemaNode) throws -> SchemaForm {
        let types = try node.has("type") ? types(of: node) : []
        let texts = values.map(\.json).filter { types.isEmpty || types.contains(where: $0.isOf) }
            .map(\.text)
        guard let shortest = texts.map(\.utf8.count).min() else { throw node.noInstance }
        try spend(SchemaWork.byte * texts.map(\.utf8.count).reduce(0, +), at: node)
        return SchemaForm("{\"enum\":[\(texts.joined(separator: ","))]}", shortest)
    }

    private mutating func schemas(_ list: SchemaNode?) throws -> [SchemaForm] {
        guard let list, case let schemas = try list.elements() else { return [] }
        guard schemas.count <= SchemaLimits.ways else { throw list.tooLarge }
        return try schemas.map { try form($0) }
    }

    /// The types that the node names, or else the type to which its keywords belong; empty for any
    /// type.
    private func types(of node: SchemaNode) throws -> [String] {
        guard let type = node["type"] else {
            let meant = Self.families.filter { $0.value.contains(where: node.has) }
            guard meant.count < 2 else {
                throw node.wrong("a type, because its keywords belong to several")
            }
            return meant.map(\.key)
        }
        let named = try type.json.isOf(type: "string") ? [type.string()] : type.names()
        guard !named.isEmpty, Set(named).isSubset(of: Self.types) else {
            throw type.wrong("one or more of \(Self.types.joined(separator: ", "))")
        }
        return named
    }

    private mutating func form(_ node: SchemaNode, as type: String) throws -> SchemaForm {
        switch type {
        case "string": try string(node)
        case "array": try array(node)
        case "object": try object(node)
        case "number", "integer": try number(node, type)
        default: SchemaForm("{\"type\":\"\(type)\"}", 4)
        }
    }
}

extension SchemaReader {
    /// A character of a string, as JSON writes it. The engine's own rule for strings with limits
    /// allows characters that JSON must escape.
    private static let character = #"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])"#

    private mutating func string(_ node: SchemaNode) throws -> SchemaForm {
        let (least, most) = try counts("Length", node)
        var pattern: String?
        if let own = try node["pattern"]?.string() {
            let before = sets.count
            pattern = PatternReader.read(own, &sets)
            try spend(SchemaWork.set * (sets.count - before), at: node)
            guard pattern != nil, least == 0, most == nil else { throw node.unsupported("pattern") }
        } else if least > 0 || most != nil {
            try spend(SchemaWork.length, at: node)
            pattern = "\(Self.character){\(least),\(most.map(String.init) ?? "")}"
        }
        let more = pattern.map { ",\"pattern\":" + OrderedJSON.quoted($0) } ?? ""
        return SchemaForm("{\"type\":\"string\"\(more)}", 2 + least)
    }

    private mutating func number(_ node: SchemaNode, _ type: String) throws -> SchemaForm {
        let isInteger = type == "integer"
        let limits = try ["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"]
            .compactMap { name in try node[name].map { (name: name, value: try $0.number()) } }
        let least = limits.filter { $0.name.hasSuffix("inimum") }.map(\.value).max() ?? -.infinity
        let most = limits.filter { $0.name.hasSuffix("aximum") }.map(\.value).min() ?? .infinity
        guard least <= most else { throw node.noInstance }
        // The engine misreads limits with decimals, and negative ones of type `number`.
        var followed = limits.filter { _, value in
            abs(value) < 1e15 && value == value.rounded() && (isInteger || value >= 0)
        }
        // With a negative minimum alone, the engine allows no negative number.
        if isInteger, least < 0, most == .infinity, !followed.isEmpty {
            followed.append(("maximum", 1e15 - 1))
        }
        if !followed.isEmpty {
            try spend(isInteger ? SchemaWork.integer : SchemaWork.number, at: node)
        }
        let more = followed.map { ",\"\($0)\":\(Int($1))" }.joined()
        return SchemaForm("{\"type\":\"\(type)\"\(more)}", 1)
    }

    private mutating func array(_ node: SchemaNode) throws -> SchemaForm {
        let (least, most) = try counts("Items", node)
        let first = try schemas(node["prefixItems"])
        let items = node["items"]
        let isClosed = items.map { $0.isWord("false") } ?? (0 < first.count && least <= first.count)
        guard !isClosed || least <= first.count else { throw node.noInstance }
        let element = isClosed ? nil : try items.map { try form($0) } ?? SchemaForm.any
        var json = "{\"type\":\"array\",\"items\":\(element?.json ?? "false"),\"minItems\":\(least)"
        if !first.isEmpty {
            json += ",\"prefixItems\":[\(first.map(\.json).joined(separator: ","))]"
        }
        if let most { json += ",\"maxItems\":\(most)" }
        let further = Double(max(0, least - first.count))
        return SchemaForm(json + "}") { known in
            let inside = first.map { $0.shortest(known) + 1 }.reduce(2, +)
            guard let each = element?.shortest(known), further > 0 else { return inside }
            return inside + further * (each + 1)
        }
    }

    /// An object has only the members that the schema names; one without names is a map.
    private mutating func object(_ node: SchemaNode) throws -> SchemaForm {
        let (least, most) = try counts("Properties", node)
        let required = Set(try node["required"]?.names() ?? [])
        let order = (try? node["x-order"]?.names()) ?? []
        let ranks = Dictionary(uniqueKeysWithValues: zip(order, order.indices))
        // The order in which Apple's schemas keep their members.
        let members = try (node["properties"]?.members() ?? []).enumerated()
            .map { (rank: ranks[$1.name] ?? order.count + $0, member: $1) }
            .sorted { $0.rank < $1.rank }.map(\.member)
        guard members.count <= SchemaLimits.ways else { throw node.tooLarge }
        guard required.isSubset(of: members.map(\.name)) else { throw node.unsupported("required") }
        // The engine does not escape names.
        guard members.allSatisfy({ OrderedJSON.quoted($0.name) == "\"\($0.name)\"" }) else {
            throw node.unsupported("properties")
        }
        let others = node["additionalProperties"]
        let value = others?.isWord("false") == true ? nil : try others.map { try form($0) } ?? .any
        var json = "{\"type\":\"object\""
        guard !members.isEmpty else {
            // The engine cannot keep two members from having the same name, which count as one.
            guard least < 2 else { throw node.unsupported("minProperties") }
            guard value != nil || least == 0 else { throw node.noInstance }
            json += ",\"additionalProperties\":\(value?.json ?? "false"),\"minProperties\":\(least)"
            if let most { json += ",\"maxProperties\":\(most)" }
            return SchemaForm(json + "}") { least == 0 ? 2 : 5 + (value?.shortest($0) ?? 0) }
        }
        for (keyword, isUsed) in [("minProperties", least > 0), ("maxProperties", most != nil)]
        where isUsed {
            throw node.unsupported(keyword)
        }
        try spend(SchemaWork.pair * members.count * members.count, at: node)
        let forms = try members.map { name, schema in
            (
                name: OrderedJSON.quoted(name), form: try form(schema),
                isNeeded: required.contains(name)
            )
        }
        let properties = forms.map { "\($0.name):\($0.form.json)" }.joined(separator: ",")
        let needed = forms.filter(\.isNeeded).map(\.name).joined(separator: ",")
        json += ",\"properties\":{\(properties)},\"required\":[\(needed)]}"
        return SchemaForm(json) { known in
            forms.reduce(2) { sum, member in
                let length = Double(member.name.utf8.count + 2) + member.form.shortest(known)
                return member.isNeeded ? sum + length : sum
            }
        }
    }

    private func counts(_ what: String, _ node: SchemaNode) throws -> (least: Int, most: Int?) {
        let least = try node["min" + what]?.count() ?? 0
        let most = try node["max" + what]?.count()
        guard least <= most ?? .max else { throw node.noInstance }
        return (least, most)
    }
}

/// Reads the regular expression of a `pattern`.
struct PatternReader {
    private var rest: Substring.UnicodeScalarView
    /// The number of open groups.
    private var depth = 0

    /// Writes an expression for the engine, which ignores anchors and compares with the escaped text
    /// of a string. So its sets have only characters that need no escape in JSON.
    ///
    /// - Parameter sets: what sets of characters match, by their expressions
    /// - Returns: nil for an expression that is too long, is not valid, or has look-around,
    ///   references, inner anchors or other things that the engine does not follow
    static func read(_ pattern: String, _ sets: inout [String: String]) -> String? {
        guard pattern.unicodeScalars.count <= SchemaLimits.pattern else { return nil }
        var reader = PatternReader(rest: pattern[...].unicodeScalars)
        var (text, isFirst) = ("", true)
        while let next = reader.rest.popFirst() {
            guard let part = reader.part(next, isFirst: isFirst, &sets) else { return nil }
            text += part
            isFirst = next == "|"
        }
        return (try? NSRegularExpression(pattern: pattern)) == nil ? nil : "(\(text))"
    }

    /// - Parameter isFirst: whether an alternative begins here
    private mutating func part(
        _ next: Unicode.Scalar, isFirst: Bool, _ sets: inout [String: String]
    ) -> String? {
        switch next {
        case "^": return isFirst && depth == 0 ? "" : nil
        case "$": return depth == 0 && (rest.first ?? "|") == "|" ? "" : nil
        case "(":
            depth += 1
            if rest.first == "?" {
                rest.removeFirst()
                guard rest.popFirst() == ":" else { return nil }
            }
            return depth <= SchemaLimits.nesting ? "(" : nil
        case ")":
            depth -= 1
            return depth >= 0 ? ")" : nil
        case "|", "*", "+", "?": return String(next)
        case "{":
            let counts = String(rest.prefix { $0 != "}" })
            rest = rest.dropFirst(counts.unicodeScalars.count + 1)
            let ends = counts.split(separator: ",").map { Int($0) ?? .max }
            guard counts.utf8.allSatisfy({ 0x30 ... 0x39 ~= $0 || $0 == 0x2C }),
                ends.allSatisfy({ $0 <= SchemaLimits.count })
            else { return nil }
            return "{\(counts)}"
        case "[":
            var expression = "["
            while rest.first != "]" {
                guard let member = rest.popFirst().flatMap({ $0 == "\\" ? escaped() : "\($0)" })
                else { return nil }
                expression += member
                // In a set of Foundation's expressions, these have a special meaning.
                guard member != "[", !expression.hasSuffix("&&"), !expression.hasSuffix("--") else {
                    return nil
                }
            }
            rest.removeFirst()
            return Self.set(expression + "]", &sets)
        case "\\": return escaped().flatMap { Self.set($0, &sets) }
        case ".": return Self.set(".", &sets)
        case "}", "]": return nil
        default:
            let isPlain = next >= " " && next != "\"" && next != "\u{7F}"
            return isPlain ? String(next) : nil
        }
    }

    /// Reads the character after a backslash, and returns both; nil if they do not describe one
    /// character.
    private mutating func escaped() -> String? {
        guard let next = rest.popFirst() else { return nil }
        let isLetter = next.properties.isAlphabetic || ("0" ... "9").contains(next)
        return !isLetter || "dDsSwW".unicodeScalars.contains(next) ? "\\\(next)" : nil
    }

    /// The characters that an expression for one character matches.
    private static func set(_ expression: String, _ sets: inout [String: String]) -> String? {
        if let known = sets[expression] { return known }
        guard let matcher = try? NSRegularExpression(pattern: expression) else { return nil }
        let codes = matcher.matches(
            in: probes, range: NSRange(location: 0, length: probes.utf16.count)
        )
        .map { Array(probes.utf16)[$0.range.location] }
        let isBroad = codes.filter { $0 > 0x7F }.count == 3
        // A set of other characters also has all characters beyond ASCII.
        let members = probes.utf16.filter { $0 < 0x7F && codes.contains($0) != isBroad }
        guard isBroad || !members.isEmpty else { return nil }
        let text = members.map { "\\x" + String($0, radix: 16, uppercase: true) }.joined()
        // \x7F is the last, because the engine would read more digits after it.
        let set = isBroad ? #"[^\x00-\x1F\x22\x5C"# + text + #"\x7F]"# : "[\(text)]"
        sets[expression] = set
        return set
    }

    /// The ASCII characters that need no escape in a string, and a letter, a sign and a space that
    /// stand for the characters beyond ASCII.
    private static let probes =
        String(String.UnicodeScalarView((0x20 ..< 0x7F).compactMap(Unicode.Scalar.init)))
        .filter { $0 != "\"" && $0 != "\\" } + "\u{e9}\u{2192}\u{2003}"
}
