import Foundation

/// Limits of a schema. With them, refusing a schema takes only milliseconds, and no more stack than
/// a thread of Apple's systems has.
enum SchemaLimits {
    /// Bytes of the schema's text.
    static let bytes = 256 << 10
    /// The greatest depth of brackets in the text, of groups in a pattern, and of rules for texts
    /// that begin alike.
    static let nesting = 48
    /// Schemas in one `anyOf`, `oneOf` or `prefixItems`.
    static let ways = 256
    /// Characters, elements or members that the schema requires in one place.
    static let count = 65536
    /// Characters of one `pattern`.
    static let pattern = 1024
    /// Bytes of the shortest text of any part of the schema.
    static let reply = 1 << 20
    /// Steps of work to convert the schema to a grammar.
    static let work = 1 << 20
}

/// Converts a JSON Schema to a grammar, and refuses a schema that cannot be checked token by token.
struct SchemaReader {
    private let root: SchemaNode
    private let grammar: SchemaGrammar
    /// Schemas that are not read yet, and the numbers of their rules.
    private var waiting: ArraySlice<(schema: SchemaNode, rule: Int)>
    /// The number of the rule for each schema that a reference names, by the schema's path.
    private var rules: [[String]: Int]

    /// Reads a whole schema, with all schemas that its references name.
    ///
    /// - Parameter grammar: an empty grammar
    /// - Returns: the grammar's ``SchemaGrammar/longestEnd()``
    /// - Throws: ``H2OSessionError/invalidSchema(_:)``
    static func read(_ text: String, into grammar: SchemaGrammar) throws -> Int {
        let root = SchemaNode(json: try OrderedJSON(parsing: text))
        try grammar.spend(text.utf8.count)
        var reader = SchemaReader(root: root, grammar: grammar)
        while let (schema, rule) = reader.waiting.popFirst() {
            grammar.begin(schema.path)
            try grammar.rule([reader.part(schema)], rule)
        }
        return try grammar.longestEnd()
    }

    private init(root: SchemaNode, grammar: SchemaGrammar) {
        (self.root, self.grammar) = (root, grammar)
        rules = [[]: grammar.reserve()]
        waiting = [(root, 0)]
    }

    /// A reference to the rule of the schema that the `$ref` of a node names.
    private mutating func target(of node: SchemaNode) throws -> GrammarPart {
        guard let place = node["$ref"], case let reference = try place.string(),
            reference == "#" || reference.hasPrefix("#/")
        else { throw node.unsupported("$ref") }
        let names = reference.components(separatedBy: "/").dropFirst()
            .map { $0.replacing("~1", with: "/").replacing("~0", with: "~") }
        var schema = root
        for name in node.path[..<node.base] + names {
            try grammar.spend(schema.json.size / 4, at: node.path)
            guard let next = schema[name] else {
                throw place.wrong("the place of a schema in this document")
            }
            schema = next
        }
        if let rule = rules[schema.path] { return .rule(rule) }
        let rule = grammar.reserve()
        rules[schema.path] = rule
        waiting.append((schema, rule))
        return .rule(rule)
    }

    /// Keywords that describe a value completely, with the keywords that may be used together with
    /// them.
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
    private static let refused = [
        "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies",
        "patternProperties", "propertyNames", "unevaluatedProperties", "unevaluatedItems",
        "additionalItems", "contains", "minContains", "maxContains", "multipleOf", "$dynamicRef",
        "$recursiveRef",
    ]

    private mutating func part(_ node: SchemaNode) throws -> GrammarPart {
        try grammar.spend(SchemaGrammar.schema, at: node.path)
        if node.isWord("true") { return .common("any") }
        if node.isWord("false") { throw node.noInstance }
        guard node.json.isOf(type: "object") else { throw node.wrong("an object, true or false") }
        if let keyword = Self.refused.first(where: node.has) { throw node.unsupported(keyword) }
        if node["uniqueItems"]?.isWord("true") == true { throw node.unsupported("uniqueItems") }
        guard let (keyword, beside) = Self.valueKeywords.first(where: { node.has($0.key) }) else {
            let types = try self.types(of: node)
            let parts = try types.map { try part(type: $0, node) }
            return parts.isEmpty ? .common("any") : try grammar.choice(parts)
        }
        let others = Self.families.flatMap(\.value) + Self.valueKeywords.map(\.key) + ["type"]
        if let other = others.first(where: { node.has($0) && !(beside + [keyword]).contains($0) }) {
            throw node.unsupported(other)
        }
        switch keyword {
        case "$ref": return try target(of: node)
        case "const": return try texts([node["const"] ?? node], node)
        case "enum": return try texts(node["enum"]?.elements() ?? [], node)
        default:
            let all = try schemas(node[keyword])
            guard keyword != "allOf" || all.count == 1 else { throw node.unsupported("allOf") }
            return try grammar.choice(all.map { try part($0) })
        }
    }

    private func texts(_ values: [SchemaNode], _ node: SchemaNode) throws -> GrammarPart {
        let types = try types(of: node)
        let values = values.filter { types.isEmpty || types.contains(where: $0.json.isOf) }
        guard !values.isEmpty else { throw node.noInstance }
        return try grammar.texts(values.map { Array($0.json.text.unicodeScalars)[...] })
    }

    private func schemas(_ list: SchemaNode?) throws -> [SchemaNode] {
        guard let list, case let schemas = try list.elements() else { return [] }
        guard schemas.count <= SchemaLimits.ways else { throw list.tooLarge }
        return schemas
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

    private mutating func part(type: String, _ node: SchemaNode) throws -> GrammarPart {
        switch type {
        case "string": try string(node)
        case "array": try array(node)
        case "object": try object(node)
        case "number", "integer": try NumberRange.part(of: node, type, grammar)
        default: .common(type)
        }
    }

    private func string(_ node: SchemaNode) throws -> GrammarPart {
        let counts = try counts("Length", node)
        var inner = GrammarPart.common("char").times(counts)
        if let pattern = try node["pattern"]?.string() {
            guard counts == 0 ... .max, let part = try PatternReader.part(of: pattern, grammar)
            else { throw node.unsupported("pattern") }
            inner = part
        }
        return .sequence([.quoted("\""), inner, .quoted("\"")])
    }

    private mutating func array(_ node: SchemaNode) throws -> GrammarPart {
        let counts = try counts("Items", node)
        let first = try schemas(node["prefixItems"]).map { (part: try part($0), counts: 1 ... 1) }
        let rest = node["items"]
        var items = Array(first.prefix(counts.upperBound))
        if rest.map({ !$0.isWord("false") }) ?? (first.isEmpty || first.count < counts.lowerBound) {
            let element = try rest.map { try part($0) } ?? .common("any")
            items.append((element, counts.without(items.count)))
        } else if items.count < counts.lowerBound {
            throw node.noInstance
        }
        return .sequence([.quoted("["), try grammar.list(items), .quoted("]")])
    }

    private mutating func object(_ node: SchemaNode) throws -> GrammarPart {
        let counts = try counts("Properties", node)
        let required = Set(try node["required"]?.names() ?? [])
        let properties = try node["properties"]?.members() ?? []
        guard required.isSubset(of: properties.map(\.name)) else {
            throw node.unsupported("required")
        }
        let order = (try? node["x-order"]?.names()) ?? []
        let ranks = Dictionary(uniqueKeysWithValues: zip(order, order.indices))
        let ranked = properties.enumerated()
            .map { (rank: ranks[$1.name] ?? order.count + $0, property: $1) }
            .sorted { $0.rank < $1.rank }.map(\.property)
        guard !properties.isEmpty else { return try braces([map(node, counts)]) }
        var items = try ranked.map { name, schema in
            let part = try member(.quoted(OrderedJSON.quoted(name)), part(schema))
            return (part: part, counts: required.contains(name) ? 1 ... 1 : 0 ... 1)
        }
        // If the number of members is limited, some optional members become required, or are left
        // out.
        var missing = counts.lowerBound - required.count
        for index in items.indices where missing > 0 && items[index].counts.lowerBound == 0 {
            items[index].counts = 1 ... 1
            missing -= 1
        }
        while items.count > counts.upperBound,
            let index = items.lastIndex(where: { $0.counts.lowerBound == 0 })
        {
            items.remove(at: index)
        }
        guard counts.contains(items.count) else { throw node.noInstance }
        return try braces(items)
    }

    private func braces(
        _ members: [(part: GrammarPart, counts: ClosedRange<Int>)]
    ) throws -> GrammarPart {
        .sequence([.quoted("{"), try grammar.list(members), .quoted("}")])
    }

    /// The members of an object whose names are not in the schema.
    private mutating func map(
        _ node: SchemaNode, _ counts: ClosedRange<Int>
    ) throws -> (part: GrammarPart, counts: ClosedRange<Int>) {
        let value = node["additionalProperties"]
        let isEmpty = value?.isWord("false") == true
        guard counts.lowerBound == 0 || !isEmpty else { throw node.noInstance }
        // The grammar cannot keep two members from having the same name, which count as one.
        guard counts.lowerBound < 2 else { throw node.unsupported("minProperties") }
        guard !isEmpty, let value else { return (.common("member"), isEmpty ? 0 ... 0 : counts) }
        return (member(.common("string"), try part(value)), counts)
    }

    private func member(_ name: GrammarPart, _ value: GrammarPart) -> GrammarPart {
        .sequence([name, .common("colon"), value])
    }

    private func counts(_ what: String, _ node: SchemaNode) throws -> ClosedRange<Int> {
        let least = try node["min" + what]?.count() ?? 0
        let most = try node["max" + what]?.count() ?? .max
        guard least <= most else { throw node.noInstance }
        return least ... most
    }
}
