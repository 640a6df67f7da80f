/// What a schema describes, in the terms that a grammar can hold text to.
indirect enum SchemaForm: Hashable {
    case any
    case literals([OrderedJSON])
    case string(counts: Counts)
    /// A string that matches a pattern, as grammar.
    case matching(String)
    case number(DigitRange)
    case array(first: [SchemaForm], rest: SchemaForm?, counts: Counts)
    case object([Property])
    /// An object with any names.
    case map(SchemaForm, counts: Counts)
    /// One of several; `apart` is the place of a schema that wants no value to be of two of them.
    case choice([SchemaForm], apart: String?)
    /// The form that is elsewhere, by its JSON pointer.
    case reference(String)

    /// How many characters, elements or members there are; `most` nil is without a limit.
    struct Counts: Hashable {
        var least = 0
        var most: Int?
    }

    struct Property: Hashable {
        let name: String
        let form: SchemaForm
        var required: Bool
    }
}

/// A schema and what it refers to, by JSON pointer; "#" is the schema itself.
typealias SchemaForms = [String: SchemaForm]
