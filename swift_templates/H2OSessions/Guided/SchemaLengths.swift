/// How short the values of a schema can be, in bytes of JSON.
struct SchemaLengths {
    private let forms: SchemaForms
    /// Of the places that are referred to.
    private var known = [String: Int]()

    init(_ forms: SchemaForms) {
        self.forms = forms
        // A place that refers to itself has another way to end, which is found first.
        for _ in forms {
            for (pointer, form) in forms { known[pointer] = length(form) ?? known[pointer] }
        }
    }

    /// The longest of the shortest values that any part of the schema has: what one more
    /// character can make necessary.
    var longest: Int { forms.values.map(longest).max() ?? 0 }

    private func longest(_ form: SchemaForm) -> Int {
        let parts: [SchemaForm] =
            switch form {
            case .any, .literals, .string, .matching, .number, .reference: []
            case .array(let first, let rest, _): first + [rest].compactMap { $0 }
            case .object(let properties): properties.map(\.form)
            case .map(let value, _): [value]
            case .choice(let all, _): all
            }
        return max(length(form) ?? 0, parts.map(longest).max() ?? 0)
    }

    /// nil for what refers to a place that is not known.
    private func length(_ form: SchemaForm) -> Int? {
        switch form {
        case .any, .number: return 17
        case .literals(let values): return values.map(\.text.utf8.count).max()
        case .string(let counts): return 2 + counts.least
        case .matching(let grammar): return grammar.utf8.count
        case .array(let first, let rest, let counts):
            let more = max(0, counts.least - first.count)
            return total(first + [SchemaForm](repeating: rest ?? .any, count: more))
        case .object(let properties):
            let required = properties.filter(\.required)
            let names = required.map { $0.name.utf8.count + 4 }.reduce(0, +)
            return total(required.map(\.form)).map { $0 + names }
        case .map(let value, let counts):
            return total([SchemaForm](repeating: value, count: counts.least)).map {
                $0 + 3 * counts.least
            }
        case .choice(let all, _): return all.compactMap(length).min()
        case .reference(let pointer): return known[pointer]
        }
    }

    /// With brackets and commas.
    private func total(_ forms: [SchemaForm]) -> Int? {
        let lengths = forms.compactMap(length)
        return lengths.count == forms.count ? lengths.reduce(2) { $0 + $1 + 2 } : nil
    }
}
