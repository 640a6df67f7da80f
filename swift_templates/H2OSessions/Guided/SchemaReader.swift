/// Reads a JSON Schema into forms, and refuses what text cannot be held to.
struct SchemaReader {
    let root: OrderedJSON

    /// - Throws: ``H2OSessionError/invalidSchema(_:)``
    func forms() throws -> SchemaForms {
        let whole = try SchemaNode(root, at: "")
        var forms: SchemaForms = ["#": try form(whole)]
        for folder in Self.definitions {
            for (_, schema) in try whole.named(folder) ?? [] {
                forms["#\(schema.place)"] = try form(schema)
            }
        }
        try SchemaChecks(forms: forms).check()
        return forms
    }

    private static let definitions = ["$defs", "definitions"]
    /// Keywords that say all about a value, with what may stand beside them.
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

    private func form(_ node: SchemaNode) throws -> SchemaForm {
        if let keyword = node.first(of: Self.refused) { throw unsupported(keyword, node) }
        if case .bool(true)? = node["uniqueItems"] { throw unsupported("uniqueItems", node) }
        if let keyword = node.first(of: Self.whole.keys) {
            let beside = Self.whole[keyword, default: []].union([keyword])
            let others = Array(Self.families.values.joined()) + Self.whole.keys + ["type"]
            if let other = node.first(of: others.filter { !beside.contains($0) }) {
                throw unsupported(other, node)
            }
            return try formOf(whole: keyword, node)
        }
        let types = try self.types(of: node)
        if types.isEmpty { return .any }
        let forms = try types.map { try form(type: $0, node) }
        return forms.count == 1 ? forms[0] : .choice(forms, apart: nil)
    }

    private func formOf(whole keyword: String, _ node: SchemaNode) throws -> SchemaForm {
        switch keyword {
        case "$ref": return .reference(try target(of: node))
        case "const", "enum":
            let types = try self.types(of: node)
            let all = keyword == "const" ? [node["const"] ?? .null] : try node.values("enum") ?? []
            let fitting = all.filter { value in
                types.isEmpty || types.contains { $0 == value.type || value.isWhole(for: $0) }
            }
            guard !fitting.isEmpty else { throw node.noInstance }
            return .literals(fitting)
        case "allOf":
            let all = try node.schemas("allOf") ?? []
            guard all.count == 1 else { throw unsupported("allOf", node) }
            return try form(all[0])
        default:
            let forms = try (node.schemas(keyword) ?? []).map(form)
            return .choice(forms, apart: keyword == "oneOf" ? node.place : nil)
        }
    }

    /// The types that the node names, or the one that its keywords are for; none is any.
    private func types(of node: SchemaNode) throws -> [String] {
        let named: [String]
        switch node["type"] {
        case nil:
            let meant = Self.families.filter { node.first(of: $0.value) != nil }
            guard meant.count < 2 else {
                throw node.wrong("type", "the type that these keywords are for")
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

    private func form(type: String, _ node: SchemaNode) throws -> SchemaForm {
        switch type {
        case "null": .literals([.null])
        case "boolean": .literals([.bool(true), .bool(false)])
        case "string": try string(node)
        case "array": try array(node)
        case "object": try object(node)
        default: .number(try DigitRange(node, whole: type == "integer"))
        }
    }

    private func string(_ node: SchemaNode) throws -> SchemaForm {
        let counts = try self.counts("Length", node)
        guard let pattern = try node.string("pattern") else { return .string(counts: counts) }
        guard counts == SchemaForm.Counts(), let grammar = SchemaPattern.grammar(of: pattern) else {
            throw unsupported("pattern", node)
        }
        return .matching(grammar)
    }

    private func array(_ node: SchemaNode) throws -> SchemaForm {
        let counts = try self.counts("Items", node)
        var first = try (node.schemas("prefixItems") ?? []).map(form)
        var rest: SchemaForm? = first.isEmpty || first.count < counts.least ? .any : nil
        if case .bool(false)? = node["items"] {
            rest = nil
        } else if let items = try node.schema("items") {
            rest = try form(items)
        }
        first = Array(first.prefix(counts.most ?? first.count))
        guard rest != nil || first.count >= counts.least else {
            throw node.noInstance
        }
        return .array(first: first, rest: rest, counts: counts)
    }

    private func object(_ node: SchemaNode) throws -> SchemaForm {
        let counts = try self.counts("Properties", node)
        let required = try node.names("required") ?? []
        let found = try node.named("properties") ?? []
        guard Set(required).isSubset(of: found.map(\.name)) else {
            throw unsupported("required", node)
        }
        guard !found.isEmpty else { return try map(node, counts) }
        let order = (try? node.names("x-order")) ?? []
        let ranked = found.enumerated().sorted { one, other in
            let ranks = [one, other].map { order.firstIndex(of: $0.element.name) ?? order.count }
            return (ranks[0], one.offset) < (ranks[1], other.offset)
        }
        var properties = try ranked.map { _, each in
            SchemaForm.Property(
                name: each.name, form: try form(each.schema),
                required: required.contains(each.name))
        }
        // Some of the optional ones become required, or go, where their number has limits.
        var missing = counts.least - required.count
        for index in properties.indices where missing > 0 && !properties[index].required {
            properties[index].required = true
            missing -= 1
        }
        while let most = counts.most, properties.count > most,
            let index = properties.lastIndex(where: { !$0.required })
        {
            properties.remove(at: index)
        }
        let count = properties.count
        guard count >= counts.least, count <= counts.most ?? count else {
            throw node.noInstance
        }
        return .object(properties)
    }

    /// An object whose members have no names in the schema.
    private func map(_ node: SchemaNode, _ counts: SchemaForm.Counts) throws -> SchemaForm {
        if case .bool(false)? = node["additionalProperties"] {
            guard counts.least == 0 else { throw node.noInstance }
            return .object([])
        }
        // Two members of one name would count once.
        guard counts.least < 2 else { throw unsupported("minProperties", node) }
        return .map(try node.schema("additionalProperties").map(form) ?? .any, counts: counts)
    }

    private func counts(_ what: String, _ node: SchemaNode) throws -> SchemaForm.Counts {
        let counts = SchemaForm.Counts(
            least: try node.count("min" + what) ?? 0, most: try node.count("max" + what))
        guard counts.least <= counts.most ?? counts.least else {
            throw node.noInstance
        }
        return counts
    }

    private func target(of node: SchemaNode) throws -> String {
        guard let pointer = try node.string("$ref") else { return "#" }
        if pointer == "#" { return pointer }
        let parts = pointer.split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 3, parts[0] == "#", Self.definitions.contains(String(parts[1])) else {
            throw unsupported("$ref", node)
        }
        let name = String(parts[2]).replacing("~1", with: "/").replacing("~0", with: "~")
        guard root[String(parts[1])]?[name] != nil else {
            throw node.wrong("$ref", "a definition that is there")
        }
        return pointer
    }

    private func unsupported(_ keyword: String, _ node: SchemaNode) -> H2OSessionError {
        .invalidSchema(.unsupported(keyword: keyword, place: node.place))
    }
}

extension OrderedJSON {
    /// The name of this value's type in a schema.
    fileprivate var type: String {
        switch self {
        case .null: "null"
        case .bool: "boolean"
        case .number: "number"
        case .string: "string"
        case .array: "array"
        case .object: "object"
        }
    }

    fileprivate func isWhole(for type: String) -> Bool {
        guard type == "integer", case .number(let digits) = self else { return false }
        return Double(digits).flatMap { Int(exactly: $0) } != nil
    }
}
