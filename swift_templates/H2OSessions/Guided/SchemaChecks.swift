/// What can only be seen when everything that a schema refers to was read.
struct SchemaChecks {
    let forms: SchemaForms

    /// - Throws: ``H2OSessionError/invalidSchema(_:)``
    func check() throws {
        let ending = self.ending()
        for (pointer, form) in forms.sorted(by: { $0.key < $1.key }) {
            try check(form, of: pointer, ending)
        }
    }

    private func check(_ form: SchemaForm, of pointer: String, _ ending: Set<String>) throws {
        guard ends(form, ending) else {
            let place = String(pointer.dropFirst())
            throw H2OSessionError.invalidSchema(.noInstance(place: place))
        }
        switch form {
        case .any, .literals, .string, .matching, .number, .reference: return
        case .array(let first, let rest, _):
            for each in first + [rest].compactMap({ $0 }) { try check(each, of: pointer, ending) }
        case .object(let properties):
            for each in properties { try check(each.form, of: pointer, ending) }
        case .map(let value, _): try check(value, of: pointer, ending)
        case .choice(let all, let apart):
            for each in all { try check(each, of: pointer, ending) }
            if let apart, !areApart(all) {
                throw H2OSessionError.invalidSchema(.unsupported(keyword: "oneOf", place: apart))
            }
        }
    }

    /// The places whose values can end: those that must not contain themselves.
    private func ending() -> Set<String> {
        var found = Set<String>()
        while true {
            let more = forms.filter { !found.contains($0.key) && ends($0.value, found) }
            if more.isEmpty { return found }
            found.formUnion(more.keys)
        }
    }

    private func ends(_ form: SchemaForm, _ ending: Set<String>) -> Bool {
        switch form {
        case .any, .literals, .string, .matching, .number: true
        case .reference(let pointer): ending.contains(pointer)
        case .array(let first, let rest, let counts):
            first.allSatisfy { ends($0, ending) }
                && (counts.least <= first.count || rest.map { ends($0, ending) } ?? true)
        case .object(let properties):
            properties.allSatisfy { !$0.required || ends($0.form, ending) }
        case .map(let value, let counts): counts.least == 0 || ends(value, ending)
        case .choice(let all, _): all.contains { ends($0, ending) }
        }
    }

    /// Whether no value is of two of the forms: by type, by listed values, or by a member that
    /// tells objects apart.
    private func areApart(_ all: [SchemaForm]) -> Bool {
        all.indices.allSatisfy { one in
            all.indices.dropFirst(one + 1).allSatisfy { isApart(all[one], all[$0]) }
        }
    }

    private func isApart(_ one: SchemaForm, _ other: SchemaForm) -> Bool {
        if types(of: one).isDisjoint(with: types(of: other)) { return true }
        switch (resolved(one), resolved(other)) {
        case (.literals(let mine), .literals(let its)): return Set(mine).isDisjoint(with: its)
        case (.object(let mine), .object(let its)):
            return mine.contains { property in
                guard property.required, case .literals(let values) = resolved(property.form),
                    let same = its.first(where: { $0.name == property.name && $0.required }),
                    case .literals(let others) = resolved(same.form)
                else { return false }
                return Set(values).isDisjoint(with: others)
            }
        default: return false
        }
    }

    private static let types: Set = ["literal", "string", "number", "array", "object"]

    private func types(of form: SchemaForm) -> Set<String> {
        switch resolved(form) {
        case .any, .reference: Self.types
        case .literals(let values): Set(values.map(Self.type))
        case .string, .matching: ["string"]
        case .number: ["number"]
        case .array: ["array"]
        case .object, .map: ["object"]
        case .choice(let all, _): all.reduce(into: []) { $0.formUnion(types(of: $1)) }
        }
    }

    private static func type(of value: OrderedJSON) -> String {
        switch value {
        case .null, .bool: "literal"
        case .number: "number"
        case .string: "string"
        case .array: "array"
        case .object: "object"
        }
    }

    /// The form that references lead to.
    private func resolved(_ form: SchemaForm) -> SchemaForm {
        var (form, left) = (form, forms.count)
        while case .reference(let pointer) = form, left > 0, let next = forms[pointer] {
            (form, left) = (next, left - 1)
        }
        return form
    }
}
