import Foundation
import H2OGrammar
import H2OKit

/// A JSON Schema that replies must follow.
///
///     let schema = try H2OSchema(
///         """
///         {"type": "object", "required": ["city", "population"], "properties": {
///           "city": {"type": "string"}, "population": {"type": "integer", "minimum": 0}}}
///         """)
///
/// Every reply is a valid instance, but not every valid instance can be a reply. An object has the
/// members that the schema names, in the order of `properties` or of the array `x-order`. Strings
/// have no `\u` escapes, and numbers have at most 15 digits before the point. A schema is refused
/// if it contains keywords that cannot be checked token by token, such as `not`, `uniqueItems` and
/// `multipleOf`. `oneOf` is treated as `anyOf`, and `format` is ignored, as in the standard.
public struct H2OSchema: Hashable, Sendable {
    /// The text of the schema.
    public let json: String
    /// A grammar that describes some of the schema's instances, in the notation of the grammar
    /// engine.
    package let grammar: String
    /// The largest number of bytes by which one more character can lengthen the shortest end of a
    /// reply.
    let longestEnd: Int

    /// Whether this package's version of mlx-swift-lm has the grammar engine that schemas need.
    public static var isSupported: Bool { GrammarEngine.isAvailable }

    /// The limit of tokens for a reply whose options have none: 512, plus two for each byte of the
    /// longest end. A token has at least one byte, so this is enough for the end of any reply.
    var roomForReply: Int { 512 + 2 * longestEnd }

    /// - Parameter json: the text of a JSON Schema (2020-12, or an older draft with the same
    ///   keywords); references are JSON pointers into itself
    /// - Throws: ``H2OSessionError/invalidSchema(_:)``
    public init(_ json: String) throws { try self.init(json, SchemaGrammar()) }

    /// - Parameter grammar: an empty grammar, which this initializer fills
    init(_ json: String, _ grammar: SchemaGrammar) throws {
        self.json = json
        let root = try OrderedJSON(parsing: json)
        try grammar.spend(json.utf8.count)
        var reader = SchemaReader(root: root, grammar: grammar)
        try reader.read()
        longestEnd = try grammar.longestEnd()
        self.grammar = grammar.text
    }
}

extension H2OSchema: Codable {
    public init(from decoder: any Decoder) throws {
        try self.init(decoder.singleValueContainer().decode(String.self))
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(json)
    }
}

/// A JSON text that keeps the order of members and the digits of numbers. Models write the members
/// of an object in the order in which a schema names them.
enum OrderedJSON: Hashable {
    case null
    case bool(Bool)
    case number(String)
    case string(String)
    case array([OrderedJSON])
    case object([Member])

    struct Member: Hashable {
        let name: String
        let value: OrderedJSON
    }

    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` for a text that is too long, nests too deeply
    ///   or is not JSON, or that has an object with two members of the same name
    init(parsing text: String) throws {
        let bytes = Array(text.utf8.prefix(SchemaLimits.bytes + 1))
        guard bytes.count <= SchemaLimits.bytes else { throw Self.tooLarge }
        var reader = Reader(rest: bytes[...])
        self = try reader.value()
        let data = Data(bytes)
        guard (try? JSONSerialization.jsonObject(with: data, options: .fragmentsAllowed)) != nil
        else { throw Self.notJSON }
    }

    private static let tooLarge = H2OSessionError.invalidSchema(.tooLarge(place: ""))
    private static let notJSON = H2OSessionError.invalidSchema(.notJSON)

    var number: Double? { if case .number(let digits) = self { Double(digits) } else { nil } }
    var string: String? { if case .string(let string) = self { string } else { nil } }
    var elements: [OrderedJSON]? { if case .array(let elements) = self { elements } else { nil } }
    var members: [Member]? { if case .object(let members) = self { members } else { nil } }

    /// The text, without spaces.
    var text: String {
        switch self {
        case .null: "null"
        case .bool(let value): value ? "true" : "false"
        case .number(let digits): digits
        case .string(let string): Self.quoted(string)
        case .array(let elements): "[" + elements.map(\.text).joined(separator: ",") + "]"
        case .object(let members):
            "{" + members.map { Self.quoted($0.name) + ":" + $0.value.text }.joined(separator: ",")
                + "}"
        }
    }

    private static func quoted(_ string: String) -> String {
        let isPlain = string.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x22 && $0 != 0x5C }
        return isPlain ? "\"\(string)\"" : H2OKit.json(string)
    }

    /// Reads a JSON text. It detects only some errors of a text that is not JSON.
    private struct Reader {
        var rest: ArraySlice<UInt8>
        /// The number of open brackets.
        private var depth = 0

        init(rest: ArraySlice<UInt8>) { self.rest = rest }

        mutating func value() throws -> OrderedJSON {
            if took("[") { return .array(try list(until: "]") { try $0.value() }) }
            if took("{") {
                var names = Set<String>()
                return .object(
                    try list(until: "}") { reader in
                        let name = try reader.string()
                        guard names.insert(name).inserted, reader.took(":") else {
                            throw OrderedJSON.notJSON
                        }
                        return Member(name: name, value: try reader.value())
                    })
            }
            if rest.first == UInt8(ascii: "\"") { return .string(try string()) }
            let word = rest.prefix { !Self.endOfWord.contains($0) }
            guard !word.isEmpty else { throw OrderedJSON.notJSON }
            rest = rest[word.endIndex...]
            switch String(decoding: word, as: UTF8.self) {
            case "null": return .null
            case "true": return .bool(true)
            case "false": return .bool(false)
            case let digits: return .number(digits)
            }
        }

        private mutating func list<Element>(
            until close: Unicode.Scalar, _ element: (inout Reader) throws -> Element
        ) throws -> [Element] {
            depth += 1
            defer { depth -= 1 }
            guard depth <= SchemaLimits.nesting else { throw OrderedJSON.tooLarge }
            var elements = [Element]()
            while !took(close) {
                _ = took(",")
                skipSpace()
                elements.append(try element(&self))
            }
            return elements
        }

        private mutating func string() throws -> String {
            var end = rest.startIndex + 1
            while end < rest.endIndex, rest[end] != UInt8(ascii: "\"") {
                end += rest[end] == UInt8(ascii: "\\") ? 2 : 1
            }
            guard end < rest.endIndex else { throw OrderedJSON.notJSON }
            let literal = rest[...end]
            rest = rest[(end + 1)...]
            guard literal.contains(UInt8(ascii: "\\")) else {
                return String(decoding: literal.dropFirst().dropLast(), as: UTF8.self)
            }
            let read = try? JSONSerialization.jsonObject(
                with: Data(literal), options: .fragmentsAllowed)
            return read as? String ?? ""
        }

        private mutating func took(_ mark: Unicode.Scalar) -> Bool {
            skipSpace()
            guard rest.first == UInt8(ascii: mark) else { return false }
            rest.removeFirst()
            return true
        }

        private mutating func skipSpace() { rest = rest.drop { Self.space.contains($0) } }

        private static let space = Set(" \t\n\r".utf8)
        private static let endOfWord = space.union(",]}:".utf8)
    }
}
