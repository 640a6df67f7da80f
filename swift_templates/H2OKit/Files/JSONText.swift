import Foundation

/// Encodes a value as JSON with sorted keys.
package func json(_ value: some Encodable) -> String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    do {
        return String(decoding: try encoder.encode(value), as: UTF8.self)
    } catch {
        preconditionFailure("A saved value must have only finite numbers: \(error)")
    }
}

/// - Throws: ``H2OCacheError/damaged(reason:file:)``
package func decode<Value: Decodable>(_ type: Value.Type, _ text: String?) throws -> Value {
    guard let text else {
        throw H2OCacheError.damaged(reason: "a text of its header is missing")
    }
    do {
        return try JSONDecoder().decode(type, from: Data(text.utf8))
    } catch is DecodingError {
        throw H2OCacheError.damaged(reason: "a text of its header is \(text.prefix(80))")
    }
}
