import Foundation
import MLXLMCommon

extension JSONValue {
    /// The value in Foundation's types, for chat templates.
    package var plain: any Sendable {
        switch self {
        case .null: NSNull()
        case .bool(let value): value
        case .int(let value): value
        case .double(let value): value
        case .string(let value): value
        case .array(let values): values.map(\.plain)
        case .object(let fields): fields.mapValues(\.plain)
        }
    }
}
