import Foundation

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
        var value: OrderedJSON
    }

    /// - Returns: nil if the text is not JSON, or an object has two members of one name
    init?(parsing text: String) {
        let bytes = Array(text.utf8)
        guard
            (try? JSONSerialization.jsonObject(with: Data(bytes), options: .fragmentsAllowed))
                != nil
        else { return nil }
        var reader = Reader(bytes: bytes)
        guard let value = reader.value() else { return nil }
        self = value
    }

    /// The value of a member.
    subscript(name: String) -> OrderedJSON? {
        guard case .object(let members) = self else { return nil }
        return members.first { $0.name == name }?.value
    }

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
        let escaped = string.unicodeScalars.map { scalar in
            switch scalar {
            case "\"", "\\": "\\\(scalar)"
            case "\u{0}" ..< " ": "\\u00" + (scalar.value < 16 ? "0" : "")
                + String(scalar.value, radix: 16)
            default: String(scalar)
            }
        }
        return "\"" + escaped.joined() + "\""
    }
}

extension OrderedJSON {
    /// Reads a text that is known to be JSON.
    private struct Reader {
        let bytes: [UInt8]
        var place = 0

        private var next: UInt8? { place < bytes.count ? bytes[place] : nil }

        mutating func value() -> OrderedJSON? {
            skipSpace()
            switch next {
            case UInt8(ascii: "{"): return object()
            case UInt8(ascii: "["): return array()
            case UInt8(ascii: "\""): return string().map { .string($0) }
            default:
                switch word() {
                case "null": return .null
                case "true": return .bool(true)
                case "false": return .bool(false)
                case let digits: return .number(digits)
                }
            }
        }

        private mutating func object() -> OrderedJSON? {
            place += 1
            var members = [Member]()
            var names = Set<String>()
            while !took("}") {
                if !members.isEmpty, !took(",") { return nil }
                skipSpace()
                guard let name = string(), names.insert(name).inserted, took(":"),
                    let value = value()
                else { return nil }
                members.append(Member(name: name, value: value))
            }
            return .object(members)
        }

        private mutating func array() -> OrderedJSON? {
            place += 1
            var elements = [OrderedJSON]()
            while !took("]") {
                if !elements.isEmpty, !took(",") { return nil }
                guard let element = value() else { return nil }
                elements.append(element)
            }
            return .array(elements)
        }

        private mutating func string() -> String? {
            guard next == UInt8(ascii: "\"") else { return nil }
            let start = place
            place += 1
            while let byte = next, byte != UInt8(ascii: "\"") {
                place += byte == UInt8(ascii: "\\") ? 2 : 1
            }
            place += 1
            guard place <= bytes.count else { return nil }
            let literal = Data(bytes[start ..< place])
            let read = try? JSONSerialization.jsonObject(with: literal, options: .fragmentsAllowed)
            return read as? String
        }

        private mutating func word() -> String {
            let start = place
            while let byte = next, !Self.endOfWord.contains(byte) { place += 1 }
            return String(decoding: bytes[start ..< place], as: UTF8.self)
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
