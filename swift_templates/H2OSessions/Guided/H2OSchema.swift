import Foundation
import H2OGrammar

/// The form of a reply: a JSON Schema that it is an instance of.
///
///     let schema = try H2OSchema(
///         """
///         {"type": "object", "required": ["city", "population"], "properties": {
///           "city": {"type": "string"}, "population": {"type": "integer", "minimum": 0}}}
///         """)
///
/// Every reply is an instance, but not every instance can be a reply: an object has the members
/// that the schema names, in the order of `properties` or of the array `x-order`, strings have no
/// `\u` escapes, and numbers have at most 15 digits before the point. Keywords that text cannot
/// be held to token by token, such as `not`, `uniqueItems` and `multipleOf`, are refused;
/// `oneOf` is read as `anyOf`, and `format` is a remark, as in the standard.
public struct H2OSchema: Hashable, Sendable {
    /// The schema as it was given.
    public let json: String
    /// A grammar of some of its instances, in the notation of the grammar engine.
    package let grammar: String
    /// The bytes that one more character of a reply can make necessary.
    let longestEnd: Int

    /// Whether this package's version of mlx-swift-lm has the engine that replies with a schema
    /// need.
    public static var isSupported: Bool { GrammarEngine.isAvailable }

    /// Tokens for a reply for which no limit is set: twice those of the shortest instance, of
    /// which a token has a byte or more, and some for texts without a length.
    var roomForReply: Int { 512 + 2 * longestEnd }

    /// - Parameter json: the text of a JSON Schema (2020-12, or an older draft with the same
    ///   keywords); references are JSON pointers into itself
    /// - Throws: ``H2OSessionError/invalidSchema(_:)``
    public init(_ json: String) throws { try self.init(json, SchemaWork()) }

    /// - Parameter work: counts what is done
    init(_ json: String, _ work: SchemaWork) throws {
        self.json = json
        var reader = SchemaReader(root: try OrderedJSON(parsing: json), work: work)
        try work.spend(json.utf8.count)
        let written = try SchemaGrammar(reader.parts(), work)
        grammar = written.text
        longestEnd = Int(written.longestEnd)
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

/// A JSON text as it is written: with its members in order, and numbers as their digits. Models
/// write the members of an object in the order in which a schema names them.
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

    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` for a text that is too long, nests too
    ///   deep or is not JSON, or has an object with two members of one name
    init(parsing text: String) throws {
        let bytes = Array(text.utf8.prefix(SchemaLimits.bytes + 1))
        guard bytes.count <= SchemaLimits.bytes else {
            throw H2OSessionError.invalidSchema(.tooLarge(place: ""))
        }
        var reader = Reader(bytes: bytes)
        // What this reader takes is not yet JSON, but nests as little as it may.
        guard let value = try reader.value(depth: 0),
            (try? JSONSerialization.jsonObject(with: Data(bytes), options: .fragmentsAllowed))
                != nil
        else { throw H2OSessionError.invalidSchema(.notJSON) }
        self = value
    }

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
        guard string.utf8.contains(where: { $0 < 0x20 || $0 == 0x22 || $0 == 0x5C }) else {
            return "\"\(string)\""
        }
        let escaped = string.unicodeScalars.map { scalar in
            switch scalar {
            case "\"", "\\": "\\\(scalar)"
            case "\u{0}" ..< " ":
                "\\u00" + (scalar.value < 16 ? "0" : "") + String(scalar.value, radix: 16)
            default: String(scalar)
            }
        }
        return "\"" + escaped.joined() + "\""
    }

    private struct Reader {
        let bytes: [UInt8]
        var place = 0

        private var next: UInt8? { place < bytes.count ? bytes[place] : nil }

        /// - Returns: nil if the text is not JSON
        mutating func value(depth: Int) throws -> OrderedJSON? {
            guard depth <= SchemaLimits.nesting else {
                throw H2OSessionError.invalidSchema(.tooLarge(place: ""))
            }
            skipSpace()
            if took("{") { return try object(depth: depth + 1) }
            if took("[") { return try array(depth: depth + 1) }
            if next == UInt8(ascii: "\"") { return string().map { .string($0) } }
            let start = place
            while let byte = next, !Self.endOfWord.contains(byte) { place += 1 }
            switch String(decoding: bytes[start ..< place], as: UTF8.self) {
            case "": return nil
            case "null": return .null
            case "true": return .bool(true)
            case "false": return .bool(false)
            case let digits: return .number(digits)
            }
        }

        private mutating func object(depth: Int) throws -> OrderedJSON? {
            var members = [Member]()
            var names = Set<String>()
            while !took("}") {
                if !members.isEmpty, !took(",") { return nil }
                skipSpace()
                guard let name = string(), names.insert(name).inserted, took(":"),
                    let value = try value(depth: depth)
                else { return nil }
                members.append(Member(name: name, value: value))
            }
            return .object(members)
        }

        private mutating func array(depth: Int) throws -> OrderedJSON? {
            var elements = [OrderedJSON]()
            while !took("]") {
                if !elements.isEmpty, !took(",") { return nil }
                guard let element = try value(depth: depth) else { return nil }
                elements.append(element)
            }
            return .array(elements)
        }

        private mutating func string() -> String? {
            guard next == UInt8(ascii: "\"") else { return nil }
            let start = place
            place += 1
            var hasEscapes = false
            while let byte = next, byte != UInt8(ascii: "\"") {
                let isEscape = byte == UInt8(ascii: "\\")
                hasEscapes = hasEscapes || isEscape
                place += isEscape ? 2 : 1
            }
            place += 1
            guard place <= bytes.count else { return nil }
            guard hasEscapes else {
                return String(decoding: bytes[start + 1 ..< place - 1], as: UTF8.self)
            }
            let literal = Data(bytes[start ..< place])
            let read = try? JSONSerialization.jsonObject(with: literal, options: .fragmentsAllowed)
            return read as? String
        }

        private mutating func took(_ mark: Unicode.Scalar) -> Bool {
            skipSpace()
            guard next == UInt8(ascii: mark) else { return false }
            place += 1
            return true
        }

        private mutating func skipSpace() {
            while let byte = next, Self.space.contains(byte) { place += 1 }
        }

        private static let space = Set(" \t\n\r".utf8)
        private static let endOfWord = space.union(",]}:".utf8)
    }
}
