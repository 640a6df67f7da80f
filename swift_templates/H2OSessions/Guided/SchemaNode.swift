/// One object of a schema, with its place; the values of keywords are checked when they are read.
struct SchemaNode {
    let members: [OrderedJSON.Member]
    /// A JSON pointer.
    let place: String

    /// - Throws: ``H2OSessionError/invalidSchema(_:)``
    init(_ json: OrderedJSON, at place: String) throws {
        switch json {
        case .object(let members): self.members = members
        case .bool(true): members = []
        case .bool(false): throw H2OSessionError.invalidSchema(.noInstance(place: place))
        default:
            let expected = "an object, true or false"
            throw H2OSessionError.invalidSchema(.notASchema(place: place, expected: expected))
        }
        self.place = place
    }

    subscript(keyword: String) -> OrderedJSON? {
        members.first { $0.name == keyword }?.value
    }

    /// The first of the keywords that is there.
    func first(of keywords: some Sequence<String>) -> String? {
        let wanted = Set(keywords)
        return members.first { wanted.contains($0.name) }?.name
    }

    func count(_ keyword: String) throws -> Int? {
        guard let value = self[keyword] else { return nil }
        guard case .number(let digits) = value, let number = Double(digits),
            let count = Int(exactly: number), count >= 0
        else { throw wrong(keyword, "a whole number from 0") }
        return count
    }

    func number(_ keyword: String) throws -> Double? {
        guard let value = self[keyword] else { return nil }
        guard case .number(let digits) = value, let number = Double(digits), number.isFinite
        else { throw wrong(keyword, "a number") }
        return number
    }

    func string(_ keyword: String) throws -> String? {
        guard let value = self[keyword] else { return nil }
        guard case .string(let string) = value else { throw wrong(keyword, "a string") }
        return string
    }

    func names(_ keyword: String) throws -> [String]? {
        guard let value = self[keyword] else { return nil }
        guard case .array(let elements) = value else { throw wrong(keyword, "a list of names") }
        let names = elements.compactMap { if case .string(let name) = $0 { name } else { nil } }
        guard names.count == elements.count, Set(names).count == names.count else {
            throw wrong(keyword, "a list of different names")
        }
        return names
    }

    func values(_ keyword: String) throws -> [OrderedJSON]? {
        guard let value = self[keyword] else { return nil }
        guard case .array(let elements) = value, !elements.isEmpty else {
            throw wrong(keyword, "a list that is not empty")
        }
        return elements
    }

    func schemas(_ keyword: String) throws -> [SchemaNode]? {
        try values(keyword)?.enumerated().map {
            try SchemaNode($1, at: "\(place)/\(keyword)/\($0)")
        }
    }

    func schema(_ keyword: String) throws -> SchemaNode? {
        try self[keyword].map { try SchemaNode($0, at: "\(place)/\(keyword)") }
    }

    /// Schemas by name, in their order.
    func named(_ keyword: String) throws -> [(name: String, schema: SchemaNode)]? {
        guard let value = self[keyword] else { return nil }
        guard case .object(let members) = value else {
            throw wrong(keyword, "an object of schemas")
        }
        return try members.map {
            ($0.name, try SchemaNode($0.value, at: "\(place)/\(keyword)/\(Self.escaped($0.name))"))
        }
    }

    /// The error for an object that describes no value.
    var noInstance: H2OSessionError { .invalidSchema(.noInstance(place: place)) }

    func wrong(_ keyword: String, _ expected: String) -> H2OSessionError {
        .invalidSchema(.notASchema(place: "\(place)/\(keyword)", expected: expected))
    }

    /// A name in a JSON pointer.
    private static func escaped(_ name: String) -> String {
        name.replacing("~", with: "~0").replacing("/", with: "~1")
    }
}
