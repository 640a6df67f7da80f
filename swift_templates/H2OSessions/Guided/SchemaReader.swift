/// Limits of a schema. With them, refusing a schema takes only milliseconds, and no more stack than
/// a thread of Apple's systems has.
enum SchemaLimits {
    /// Bytes of the schema's text.
    static let bytes = 256 << 10
    /// The depth of brackets in the text, and of rules for texts with a common beginning.
    static let nesting = 48
    /// Schemas in one `anyOf`, `oneOf` or `prefixItems`.
    static let ways = 256
    /// Characters, elements or members that the schema requires in one place.
    static let count = 65536
    /// Characters of one `pattern`.
    static let pattern = 1024
    /// Bytes of the shortest reply that any part requires.
    static let reply = 1 << 20
    /// Steps of work to convert the schema to a grammar.
    static let work = 1 << 20
}

/// Converts a JSON Schema to a grammar, and refuses a schema that cannot be checked token by token.
struct SchemaReader {
    private let root: OrderedJSON
    private let grammar: SchemaGrammar
    /// Schemas that a reference names and that are not read yet.
    private var schemas = [SchemaNode]()
    /// The rules of schemas that a reference names: their names, by JSON pointer.
    private var names = [String: String]()

    init(root: OrderedJSON, grammar: SchemaGrammar) {
        (self.root, self.grammar) = (root, grammar)
    }

    /// Reads the whole schema, including all schemas that references name.
    ///
    /// - Throws: ``H2OSessionError/invalidSchema(_:)``
    mutating func read() throws {
        let whole = try SchemaNode(root, at: "")
        add(whole, named: "root")
        for keyword in ["$defs", "definitions"] {
            for (_, schema) in try whole.named(keyword) { add(schema) }
        }
        while !schemas.isEmpty {
            let schema = schemas.removeFirst()
            let part = try part(schema)
            grammar.define(schema.place, as: part, named: names[schema.place] ?? "")
        }
    }

    private mutating func add(_ schema: SchemaNode, named name: String? = nil) {
        guard names[schema.place] == nil else { return }
        names[schema.place] = name ?? "d\(names.count)"
        schemas.append(schema)
    }

    /// The value at a JSON pointer into the schema; nil if there is none.
    private func value(at pointer: String) throws -> OrderedJSON? {
        var value: OrderedJSON? = root
        for part in pointer.split(separator: "/", omittingEmptySubsequences: false).dropFirst() {
            let name = part.replacing("~1", with: "/").replacing("~0", with: "~")
            try grammar.spend(value?.members?.count ?? 1, at: pointer)
            let elements = value?.elements ?? []
            value =
                value?.members?.first { $0.name == name }?.value
                ?? Int(name).flatMap { elements.indices.contains($0) ? elements[$0] : nil }
        }
        return value
    }

    /// Keywords that describe a value completely, with the keywords that may be used together with
    /// them.
    private static let whole: [String: Set<String>] = [
        "$ref": [], "const": ["type"], "enum": ["type"], "anyOf": [], "oneOf": [], "allOf": [],
    ]
    private static let families: [String: [String]] = [
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
    private static let refused = [
        "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies",
        "patternProperties", "propertyNames", "unevaluatedProperties", "unevaluatedItems",
        "additionalItems", "contains", "minContains", "maxContains", "multipleOf", "$dynamicRef",
        "$recursiveRef",
    ]

    private mutating func part(_ node: SchemaNode) throws -> GrammarPart {
        try grammar.spend(SchemaGrammar.schema, at: node.place)
        if let keyword = node.first(of: Self.refused) { throw node.unsupported(keyword) }
        if case .bool(true)? = node["uniqueItems"] { throw node.unsupported("uniqueItems") }
        if let keyword = node.first(of: Self.whole.keys) {
            let beside = Self.whole[keyword, default: []].union([keyword])
            let others = Array(Self.families.values.joined()) + Self.whole.keys + ["type"]
            if let other = node.first(of: others.filter { !beside.contains($0) }) {
                throw node.unsupported(other)
            }
            return try part(whole: keyword, node)
        }
        let types = try self.types(of: node)
        let ways = try types.map { try part(type: $0, node) }
        return ways.count == 1 ? ways[0] : ways.isEmpty ? .common("any") : .choice(ways)
    }

    private mutating func part(whole keyword: String, _ node: SchemaNode) throws -> GrammarPart {
        switch keyword {
        case "$ref": return try target(of: node)
        case "const", "enum":
            let types = try self.types(of: node)
            let all = keyword == "const" ? [node["const"] ?? .null] : try node.values("enum") ?? []
            let values = all.filter { value in
                types.isEmpty || types.contains { value.isOf(type: $0) }
            }
            guard !values.isEmpty else { throw node.noInstance }
            if values.count == 1 { return .quoted(values[0].text) }
            return try grammar.sharing(
                values.map { $0.text.unicodeScalars.map { GrammarPart.notation(String($0)) } })
        case "allOf":
            let all = try node.schemas("allOf") ?? []
            guard all.count == 1 else { throw node.unsupported("allOf") }
            return try part(all[0])
        default: return .choice(try node.schemas(keyword)?.map { try part($0) } ?? [])
        }
    }

    /// The types that the node names, or else the type to which its keywords belong; empty for any
    /// type.
    private func types(of node: SchemaNode) throws -> [String] {
        let named: [String]
        switch node["type"] {
        case nil:
            let meant = Self.families.filter { node.first(of: $0.value) != nil }
            guard meant.count < 2 else {
                throw node.wrong("type", "the type to which the other keywords belong")
            }
            return Array(meant.keys)
        case .string(let name): named = [name]
        default: named = try node.names("type") ?? []
        }
        guard !named.isEmpty, Set(named).isSubset(of: Self.types) else {
            throw node.wrong("type", "one or more of \(Self.types.joined(separator: ", "))")
        }
        return named
    }

    private mutating func part(type: String, _ node: SchemaNode) throws -> GrammarPart {
        switch type {
        case "string": return try string(node)
        case "array": return try array(node)
        case "object": return try object(node)
        case "number", "integer":
            let ways = try NumberRange.ways(node, whole: type == "integer")
            return try ways.map { try grammar.sharing($0) } ?? .common(type)
        default: return .common(type)
        }
    }

    private func string(_ node: SchemaNode) throws -> GrammarPart {
        let counts = try self.counts("Length", node)
        var inner = GrammarPart.repeated(.common("char"), counts)
        if let pattern = try node.string("pattern") {
            guard counts == GrammarPart.Counts(),
                let part = try PatternReader.part(of: pattern, grammar)
            else { throw node.unsupported("pattern") }
            inner = part
        }
        return .between("\"", inner, "\"")
    }

    private mutating func array(_ node: SchemaNode) throws -> GrammarPart {
        var counts = try self.counts("Items", node)
        var first = try (node.schemas("prefixItems") ?? []).map { try part($0) }
        var rest: GrammarPart? = first.isEmpty || first.count < counts.least ? .common("any") : nil
        if case .bool(false)? = node["items"] {
            rest = nil
        } else if let items = try node.schema("items") {
            rest = try part(items)
        }
        first = Array(first.prefix(counts.most ?? first.count))
        guard rest != nil || first.count >= counts.least else { throw node.noInstance }
        var elements = first.flatMap { [GrammarPart.comma, $0] }.dropFirst()
        if let rest {
            counts.least = max(0, counts.least - first.count)
            counts.most = counts.most.map { $0 - first.count }
            elements.append(
                try first.isEmpty
                    ? grammar.list(rest, counts)
                    : .repeated(.sequence([GrammarPart.comma, rest]), counts))
        }
        return .between("[", .sequence(Array(elements)), "]")
    }

    private mutating func object(_ node: SchemaNode) throws -> GrammarPart {
        let counts = try self.counts("Properties", node)
        let required = Set(try node.names("required") ?? [])
        let properties = try node.named("properties")
        guard required.isSubset(of: properties.map(\.name)) else {
            throw node.unsupported("required")
        }
        guard !properties.isEmpty else { return try map(node, counts) }
        let order = (try? node.names("x-order")) ?? []
        let ranks = Dictionary(uniqueKeysWithValues: order.enumerated().map { ($1, $0) })
        let ranked = properties.enumerated().sorted { one, other in
            (ranks[one.element.name] ?? order.count, one.offset)
                < (ranks[other.element.name] ?? order.count, other.offset)
        }
        var members = try ranked.map { _, property in
            let name = GrammarPart.quoted(OrderedJSON.string(property.name).text)
            return (
                part: GrammarPart.member(name, try part(property.schema)),
                isRequired: required.contains(property.name)
            )
        }
        // If the number of members is limited, some optional members become required, or are left
        // out.
        var missing = counts.least - required.count
        for index in members.indices where missing > 0 && !members[index].isRequired {
            members[index].isRequired = true
            missing -= 1
        }
        while let most = counts.most, members.count > most,
            let index = members.lastIndex(where: { !$0.isRequired })
        {
            members.remove(at: index)
        }
        guard members.count >= counts.least, members.count <= counts.most ?? members.count else {
            throw node.noInstance
        }
        return .between("{", try grammar.members(members), "}")
    }

    /// An object whose member names are not in the schema.
    private mutating func map(
        _ node: SchemaNode, _ counts: GrammarPart.Counts
    ) throws -> GrammarPart {
        var counts = counts
        var value = GrammarPart.common("any")
        if case .bool(false)? = node["additionalProperties"] {
            guard counts.least == 0 else { throw node.noInstance }
            counts.most = 0
        } else if let schema = try node.schema("additionalProperties") {
            value = try part(schema)
        }
        // The grammar cannot keep two members from having the same name, which count as one.
        guard counts.least < 2 else { throw node.unsupported("minProperties") }
        let members = try grammar.list(.member(.common("string"), value), counts)
        return .between("{", members, "}")
    }

    private func counts(_ what: String, _ node: SchemaNode) throws -> GrammarPart.Counts {
        let counts = GrammarPart.Counts(
            least: try node.count("min" + what) ?? 0, most: try node.count("max" + what))
        guard counts.least <= counts.most ?? counts.least else { throw node.noInstance }
        return counts
    }

    private mutating func target(of node: SchemaNode) throws -> GrammarPart {
        guard let reference = try node.string("$ref"),
            reference == "#" || reference.hasPrefix("#/")
        else { throw node.unsupported("$ref") }
        let place = String(reference.dropFirst())
        if names[place] == nil {
            guard let schema = try value(at: place) else {
                throw node.wrong("$ref", "the place of a schema in this document")
            }
            add(try SchemaNode(schema, at: place))
        }
        return .rule(names[place] ?? "")
    }
}

extension OrderedJSON {
    fileprivate func isOf(type: String) -> Bool {
        switch self {
        case .null: type == "null"
        case .bool: type == "boolean"
        case .number(let digits):
            type == "number"
                || type == "integer" && Double(digits).flatMap { Int(exactly: $0) } != nil
        case .string: type == "string"
        case .array: type == "array"
        case .object: type == "object"
        }
    }
}

/// One object of a schema, with its place. The values of keywords are checked when they are read.
struct SchemaNode {
    let members: [OrderedJSON.Member]
    /// A JSON pointer.
    let place: String

    /// - Throws: ``H2OSessionError/invalidSchema(_:)``
    init(_ json: OrderedJSON, at place: String) throws {
        self.place = place
        switch json {
        case .object(let members): self.members = members
        case .bool(true): members = []
        case .bool(false): throw H2OSessionError.invalidSchema(.noInstance(place: place))
        default:
            let expected = "an object, true or false"
            throw H2OSessionError.invalidSchema(.notASchema(place: place, expected: expected))
        }
    }

    subscript(keyword: String) -> OrderedJSON? {
        members.first { $0.name == keyword }?.value
    }

    /// The first of these keywords that the node has.
    func first(of keywords: some Sequence<String>) -> String? {
        let wanted = Set(keywords)
        return members.first { wanted.contains($0.name) }?.name
    }

    /// The value of a keyword; nil if the node does not have it.
    private func value<T>(
        _ keyword: String, _ expected: String, _ read: (OrderedJSON) -> T?
    ) throws -> T? {
        guard let value = self[keyword] else { return nil }
        guard let result = read(value) else { throw wrong(keyword, expected) }
        return result
    }

    func count(_ keyword: String) throws -> Int? {
        let number = try value(keyword, "a whole number from 0") { value in
            value.number.flatMap { $0 >= 0 && $0 == $0.rounded(.down) ? $0 : nil }
        }
        guard number ?? 0 <= Double(SchemaLimits.count) else { throw tooLarge(keyword) }
        return number.map { Int($0) }
    }

    func number(_ keyword: String) throws -> Double? {
        try value(keyword, "a number") { value in value.number.flatMap { $0.isFinite ? $0 : nil } }
    }

    func string(_ keyword: String) throws -> String? {
        try value(keyword, "a string", \.string)
    }

    func names(_ keyword: String) throws -> [String]? {
        try value(keyword, "a list of different names") { value in
            let names = value.elements?.compactMap(\.string) ?? []
            return Set(names).count == value.elements?.count ? names : nil
        }
    }

    func values(_ keyword: String) throws -> [OrderedJSON]? {
        try value(keyword, "a list that is not empty") { value in
            value.elements.flatMap { $0.isEmpty ? nil : $0 }
        }
    }

    func schemas(_ keyword: String) throws -> [SchemaNode]? {
        guard let elements = try values(keyword) else { return nil }
        guard elements.count <= SchemaLimits.ways else { throw tooLarge(keyword) }
        return try elements.enumerated().map {
            try SchemaNode($1, at: "\(place)/\(keyword)/\($0)")
        }
    }

    func schema(_ keyword: String) throws -> SchemaNode? {
        try self[keyword].map { try SchemaNode($0, at: "\(place)/\(keyword)") }
    }

    /// The schemas of a keyword by name, in their order; empty if the node does not have it.
    func named(_ keyword: String) throws -> [(name: String, schema: SchemaNode)] {
        try value(keyword, "an object of schemas", \.members)?.map {
            let name = $0.name.replacing("~", with: "~0").replacing("/", with: "~1")
            return ($0.name, try SchemaNode($0.value, at: "\(place)/\(keyword)/\(name)"))
        } ?? []
    }

    /// The error for a schema that no value matches.
    var noInstance: H2OSessionError { .invalidSchema(.noInstance(place: place)) }

    func unsupported(_ keyword: String) -> H2OSessionError {
        .invalidSchema(.unsupported(keyword: keyword, place: place))
    }

    private func tooLarge(_ keyword: String) -> H2OSessionError {
        .invalidSchema(.tooLarge(place: "\(place)/\(keyword)"))
    }

    func wrong(_ keyword: String, _ expected: String) -> H2OSessionError {
        .invalidSchema(.notASchema(place: "\(place)/\(keyword)", expected: expected))
    }
}
