import Foundation
import H2OKit

extension H2OSchema {
    /// Checks a complete reply.
    ///
    /// - Throws: ``H2OSessionError/replyBreaksSchema(place:)``
    func check(_ reply: String) throws {
        let value = try? JSONDecoder().decode(JSONValue.self, from: Data(reply.utf8))
        var check = SchemaCheck(root: SchemaNode(json: try OrderedJSON(parsing: json)))
        if let place = try value.map({ try check.broken(check.root, by: $0) }) ?? "" {
            throw H2OSessionError.replyBreaksSchema(place: place)
        }
    }
}

/// Checks values by the rules of the standard, each keyword on its own.
private struct SchemaCheck {
    let root: SchemaNode
    /// The number of schemas that may still be compared with a value, and of calls inside each
    /// other. A schema may make both grow without end.
    private var (left, depth) = (1 << 16, 96)

    init(root: SchemaNode) { self.root = root }

    /// A JSON pointer to a keyword that does not hold; nil if all do.
    mutating func broken(_ node: SchemaNode, by value: JSONValue) throws -> String? {
        (left, depth) = (left - 1, depth - 1)
        defer { depth += 1 }
        guard left > 0, depth > 0, !node.isWord("false") else { return node.place }
        guard !node.isWord("true") else { return nil }
        for (keyword, rule) in try node.members() {
            if let place = try broken(keyword, rule, of: node, by: value) { return place }
        }
        return nil
    }

    private mutating func broken(
        _ keyword: String, _ rule: SchemaNode, of node: SchemaNode, by value: JSONValue
    ) throws -> String? {
        switch (keyword, value) {
        case ("$ref", _): return try broken(node.target(in: root), by: value)
        case ("allOf", _): return try first(rule.elements().map { ($0, value) })
        case ("items", .array(let elements)):
            let count = try node["prefixItems"]?.elements().count ?? 0
            return try first(elements.dropFirst(count).map { (rule, $0) })
        case ("prefixItems", .array(let elements)):
            return try first(Array(zip(rule.elements(), elements)))
        case ("properties", .object(let members)):
            return try first(
                rule.members().compactMap { name, schema in
                    members[name].map { (schema, $0) }
                })
        case ("additionalProperties", .object(let members)):
            let others = members.filter { node["properties"]?.has($0.key) != true }
            return try first(others.map { (rule, $0.value) })
        default: return try holds(keyword, rule, value) ? nil : rule.place
        }
    }

    private mutating func first(_ pairs: [(SchemaNode, JSONValue)]) throws -> String? {
        for (node, value) in pairs { if let place = try broken(node, by: value) { return place } }
        return nil
    }

    /// Whether a value follows a keyword; true for other keywords and values of other types.
    private mutating func holds(
        _ keyword: String, _ rule: SchemaNode, _ value: JSONValue
    ) throws -> Bool {
        switch (keyword, value) {
        case ("const", _): return rule.json.equals(value)
        case ("enum", _): return try rule.elements().contains { $0.json.equals(value) }
        case ("anyOf", _), ("oneOf", _):
            var count = 0
            for way in try rule.elements() where try broken(way, by: value) == nil { count += 1 }
            return keyword == "oneOf" ? count == 1 : count > 0
        case ("type", _):
            let types = try rule.json.isOf(type: "string") ? [rule.string()] : rule.names()
            return types.contains { value.isOf(type: $0) }
        case ("minLength", .string(let text)): return try text.unicodeScalars.count >= rule.count()
        case ("maxLength", .string(let text)): return try text.unicodeScalars.count <= rule.count()
        case ("pattern", .string(let text)): return text.contains(pattern: try rule.string())
        case ("minItems", .array(let elements)): return try elements.count >= rule.count()
        case ("maxItems", .array(let elements)): return try elements.count <= rule.count()
        case ("minProperties", .object(let members)): return try members.count >= rule.count()
        case ("maxProperties", .object(let members)): return try members.count <= rule.count()
        case ("required", .object(let members)):
            return try rule.names().allSatisfy { members[$0] != nil }
        default:
            guard let number = value.number else { return true }
            switch keyword {
            case "minimum": return try number >= rule.number()
            case "maximum": return try number <= rule.number()
            case "exclusiveMinimum": return try number > rule.number()
            case "exclusiveMaximum": return try number < rule.number()
            default: return true
            }
        }
    }
}

extension OrderedJSON {
    fileprivate func equals(_ value: JSONValue) -> Bool {
        switch (self, value) {
        case (.string(let own), .string(let other)): own == other
        case (.array(let own), .array(let other)):
            own.count == other.count && zip(own, other).allSatisfy { $0.equals($1) }
        case (.object(let own), .object(let other)):
            own.count == other.count
                && own.allSatisfy { name, own in other[name].map(own.equals) ?? false }
        case (.word(let word), _):
            value.number.map { $0 == Double(word) } ?? (word == value.word)
        default: false
        }
    }
}

extension JSONValue {
    fileprivate var number: Double? {
        switch self {
        case .int(let number): Double(number)
        case .double(let number): number
        default: nil
        }
    }

    /// null, true or false.
    fileprivate var word: String? {
        switch self {
        case .null: "null"
        case .bool(let value): "\(value)"
        default: nil
        }
    }

    fileprivate func isOf(type: String) -> Bool {
        switch self {
        case .null: type == "null"
        case .bool: type == "boolean"
        case .string: type == "string"
        case .array: type == "array"
        case .object: type == "object"
        case .int, .double:
            type == "number" || type == "integer" && number.map { $0 == $0.rounded() } == true
        }
    }
}

extension String {
    /// Whether a part of the text matches. An expression that takes too many steps does not.
    fileprivate func contains(pattern: String) -> Bool {
        guard let expression = try? NSRegularExpression(pattern: pattern) else { return false }
        var (isFound, reports) = (false, 0)
        expression.enumerateMatches(
            in: self, options: .reportProgress, range: NSRange(startIndex..., in: self)
        ) { match, _, stop in
            reports += 1
            isFound = match?.resultType == .regularExpression
            stop.pointee = ObjCBool(isFound || reports > 100)
        }
        return isFound
    }
}
