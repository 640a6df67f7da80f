import Foundation
import H2OKit

/// A JSON text that keeps the order of members and the digits of numbers. Models write the members
/// of an object in the order in which a schema names them.
enum OrderedJSON {
    /// null, true, false or a number, as it is written.
    case word(String)
    case string(String)
    case array([OrderedJSON])
    case object([(name: String, value: OrderedJSON)])

    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` for a text that is too long, nests too deeply
    ///   or is not JSON, or that has an object with two members of the same name
    init(parsing text: String) throws {
        let bytes = Data(text.utf8.prefix(SchemaLimits.bytes + 1))
        var reader = Reader(rest: Array(bytes)[...])
        if bytes.count > SchemaLimits.bytes { reader.fail(.tooLarge(place: "")) }
        self = reader.value()
        if let problem = reader.problem { throw H2OSessionError.invalidSchema(problem) }
        guard (try? JSONSerialization.jsonObject(with: bytes, options: .fragmentsAllowed)) != nil
        else { throw H2OSessionError.invalidSchema(.notJSON) }
    }

    /// The text, without spaces.
    var text: String {
        switch self {
        case .word(let word): word
        case .string(let string): Self.quoted(string)
        case .array(let elements): "[" + elements.map(\.text).joined(separator: ",") + "]"
        case .object(let members):
            "{" + members.map { Self.quoted($0.name) + ":" + $0.value.text }.joined(separator: ",")
                + "}"
        }
    }

    /// A string as JSON.
    static func quoted(_ string: String) -> String {
        let isPlain = string.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x22 && $0 != 0x5C }
        return isPlain ? "\"\(string)\"" : H2OKit.json(string)
    }

    func isOf(type: String) -> Bool {
        switch self {
        case .word("null"): type == "null"
        case .word("true"), .word("false"): type == "boolean"
        case .word(let digits):
            type == "number"
                || type == "integer" && Double(digits).flatMap { Int(exactly: $0) } != nil
        case .string: type == "string"
        case .array: type == "array"
        case .object: type == "object"
        }
    }

    /// The number of members or elements.
    var size: Int {
        switch self {
        case .array(let elements): elements.count
        case .object(let members): members.count
        case .word, .string: 1
        }
    }

    /// Reads a JSON text. It does not detect words and strings that are not JSON.
    private struct Reader {
        var rest: ArraySlice<UInt8>
        /// What is wrong with the text.
        private(set) var problem: H2OSessionError.SchemaProblem?
        /// The number of open brackets.
        private var depth = 0

        init(rest: ArraySlice<UInt8>) { self.rest = rest }

        mutating func value() -> OrderedJSON {
            if took("[") { return .array(list(until: "]") { $0.value() }) }
            if took("{") {
                let members = list(until: "}") { reader in
                    let name = reader.string()
                    if !reader.took(":") { reader.fail(.notJSON) }
                    return (name: name, value: reader.value())
                }
                if Set(members.map(\.name)).count < members.count { fail(.notJSON) }
                return .object(members)
            }
            if rest.first == UInt8(ascii: "\"") { return .string(string()) }
            let word = rest.prefix { !" \t\n\r,]}:".utf8.contains($0) }
            if word.isEmpty { fail(.notJSON) }
            rest = rest.dropFirst(word.count)
            return .word(String(decoding: word, as: UTF8.self))
        }

        private mutating func list<Element>(
            until close: Unicode.Scalar, _ element: (inout Reader) -> Element
        ) -> [Element] {
            depth += 1
            defer { depth -= 1 }
            if depth > SchemaLimits.nesting { fail(.tooLarge(place: "")) }
            if took(close) { return [] }
            var elements = [Element]()
            repeat { elements.append(element(&self)) } while took(",")
            if !took(close) { fail(.notJSON) }
            return elements
        }

        private mutating func string() -> String {
            skipSpace()
            var end = rest.startIndex + 1
            while end < rest.endIndex, rest[end] != UInt8(ascii: "\"") {
                end += rest[end] == UInt8(ascii: "\\") ? 2 : 1
            }
            guard end < rest.endIndex, rest.first == UInt8(ascii: "\"") else {
                fail(.notJSON)
                return ""
            }
            let literal = rest[...end]
            rest = rest[(end + 1)...]
            guard literal.contains(UInt8(ascii: "\\")) else {
                return String(decoding: literal.dropFirst().dropLast(), as: UTF8.self)
            }
            return (try? JSONDecoder().decode(String.self, from: Data(literal))) ?? ""
        }

        /// Notes the first problem, and reads no more.
        mutating func fail(_ problem: H2OSessionError.SchemaProblem) {
            self.problem = self.problem ?? problem
            rest = []
        }

        private mutating func took(_ mark: Unicode.Scalar) -> Bool {
            skipSpace()
            guard rest.first == UInt8(ascii: mark) else { return false }
            rest.removeFirst()
            return true
        }

        private mutating func skipSpace() { rest = rest.drop { " \t\n\r".utf8.contains($0) } }
    }
}

/// A value in a schema, with its place. Each function throws
/// ``H2OSessionError/invalidSchema(_:)`` if the value is of another kind.
struct SchemaNode {
    let json: OrderedJSON
    /// The names and indices that lead from the whole document to this value.
    var path = [String]()
    /// How many of these names lead to the schema in which references are resolved: the nearest
    /// schema with `$id`, or the whole document.
    var base = 0

    /// The member or element with this name.
    subscript(name: String) -> SchemaNode? {
        switch json {
        case .object(let members): members.first { $0.name == name }.map { inner($0.value, name) }
        case .array(let elements):
            Int(name).flatMap { elements.indices.contains($0) ? inner(elements[$0], name) : nil }
        case .word, .string: nil
        }
    }

    private func inner(_ json: OrderedJSON, _ name: String) -> SchemaNode {
        let inner = SchemaNode(json: json, path: path + [name], base: base)
        guard case .object(let members) = json,
            members.contains(where: { $0.name == "$id" && $0.value.isOf(type: "string") })
        else { return inner }
        return SchemaNode(json: json, path: inner.path, base: inner.path.count)
    }

    func has(_ name: String) -> Bool {
        if case .object(let members) = json { members.contains { $0.name == name } } else { false }
    }

    /// Whether the value is this word: null, true, false or a number.
    func isWord(_ word: String) -> Bool { if case .word(word) = json { true } else { false } }

    func count() throws -> Int {
        let expected = "a whole number from 0"
        let number = try number(expected)
        guard number >= 0, number == number.rounded(.down) else { throw wrong(expected) }
        guard number <= Double(SchemaLimits.count) else { throw tooLarge }
        return Int(number)
    }

    func number(_ expected: String = "a number") throws -> Double {
        guard case .word(let digits) = json, let number = Double(digits), number.isFinite else {
            throw wrong(expected)
        }
        return number
    }

    func string() throws -> String {
        guard case .string(let string) = json else { throw wrong("a string") }
        return string
    }

    func names() throws -> [String] {
        let names = (try? elements().map { try $0.string() }) ?? []
        guard case .array(let elements) = json, Set(names).count == elements.count else {
            throw wrong("a list of different names")
        }
        return names
    }

    func elements() throws -> [SchemaNode] {
        guard case .array(let elements) = json, !elements.isEmpty else {
            throw wrong("a list that is not empty")
        }
        return elements.enumerated().map { inner($1, "\($0)") }
    }

    func members() throws -> [(name: String, schema: SchemaNode)] {
        guard case .object(let members) = json else { throw wrong("an object of schemas") }
        return members.map { ($0.name, inner($0.value, $0.name)) }
    }

    /// A JSON pointer to the value.
    var place: String { path.pointer }

    /// The schema that the `$ref` of this node names.
    ///
    /// - Parameters:
    ///   - root: the whole document
    ///   - visit: is called with each value on the way
    func target(
        in root: SchemaNode, visit: (SchemaNode) throws -> Void = { _ in }
    ) throws -> SchemaNode {
        guard let place = self["$ref"], case let reference = try place.string(),
            reference == "#" || reference.hasPrefix("#/")
        else { throw unsupported("$ref") }
        let names = reference.components(separatedBy: "/").dropFirst()
            .map { $0.replacing("~1", with: "/").replacing("~0", with: "~") }
        return try (path[..<base] + names).reduce(root) { schema, name in
            try visit(schema)
            guard let next = schema[name] else {
                throw place.wrong("the place of a schema in this document")
            }
            return next
        }
    }

    /// The error for a schema that no value matches.
    var noInstance: H2OSessionError { .invalidSchema(.noInstance(place: place)) }

    /// The error for a value that requires too much.
    var tooLarge: H2OSessionError { .invalidSchema(.tooLarge(place: place)) }

    func unsupported(_ keyword: String) -> H2OSessionError {
        .invalidSchema(.unsupported(keyword: keyword, place: place))
    }

    func wrong(_ expected: String) -> H2OSessionError {
        .invalidSchema(.notASchema(place: place, expected: expected))
    }
}

extension [String] {
    /// The JSON pointer with these names.
    var pointer: String {
        map { "/" + $0.replacing("~", with: "~0").replacing("/", with: "~1") }.joined()
    }
}
