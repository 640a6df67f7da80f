// Stands in for the JSON values of mlx-swift-lm 3.31.4.

public enum JSONValue: Hashable, Codable, Sendable {
    case null
    case bool(Bool)
    case int(Int)
    case double(Double)
    case string(String)
    case array([JSONValue])
    case object([String: JSONValue])

    public init(from decoder: any Decoder) throws {
        let value = try decoder.singleValueContainer()
        if value.decodeNil() {
            self = .null
        } else if let known =
            (try? value.decode(Bool.self)).map(JSONValue.bool)
            ?? (try? value.decode(Int.self)).map(JSONValue.int)
            ?? (try? value.decode(Double.self)).map(JSONValue.double)
            ?? (try? value.decode(String.self)).map(JSONValue.string)
            ?? (try? value.decode([JSONValue].self)).map(JSONValue.array)
        {
            self = known
        } else {
            self = .object(try value.decode([String: JSONValue].self))
        }
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .null: try container.encodeNil()
        case .bool(let value): try container.encode(value)
        case .int(let value): try container.encode(value)
        case .double(let value): try container.encode(value)
        case .string(let value): try container.encode(value)
        case .array(let values): try container.encode(values)
        case .object(let fields): try container.encode(fields)
        }
    }
}
