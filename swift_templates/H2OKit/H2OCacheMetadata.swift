import Foundation
import MLX

/// The strings that describe a saved cache: the kind of cache with the version of its
/// format, tokens seen, rows in use, tokens whose attention is outstanding, the
/// configuration and, except for dense rows, how the rows are stored, and with recall, which
/// the format's last word says, its archive. Python's are the same.
struct H2OCacheMetadata: Hashable {
    let offset: Int
    let length: Int
    let pending: Int
    let configuration: H2OConfiguration
    /// How the rows are stored, as JSON.
    let storage: String?
    /// The archive, as JSON; nil without recall.
    let archive: String?

    init(_ core: H2OCacheCore) {
        offset = core.offset
        length = core.length
        pending = core.pending
        configuration = core.configuration
        storage = core.savedFormat
        archive = core.savedArchive
    }

    /// - Parameter format: the kind of cache and version that is expected
    /// - Throws: ``H2OCacheError``
    init(_ fields: [String], format: String) throws {
        let recalls = fields.first == format + Self.recalls
        guard recalls || fields.first == format, fields.count >= (recalls ? 6 : 5) else {
            throw H2OCacheError.otherFormat(found: fields.first ?? "", known: [format])
        }
        offset = try Self.count(fields[1], "offset")
        length = try Self.count(fields[2], "length")
        pending = try Self.count(fields[3], "pending")
        guard pending <= offset else {
            throw H2OCacheError.damaged(
                reason: "\(pending) of its \(offset) tokens are outstanding")
        }
        configuration = try decode(H2OConfiguration.self, fields[4])
        archive = recalls ? fields.last : nil
        storage = fields.count > (recalls ? 6 : 5) ? fields[5] : nil
    }

    func fields(format: String) -> [String] {
        let name = archive == nil ? format : format + Self.recalls
        let common = [name, "\(offset)", "\(length)", "\(pending)", json(configuration)]
        return common + [storage, archive].compactMap { $0 }
    }

    /// What the format of a cache with recall ends with.
    static let recalls = "+recall"

    private static func count(_ field: String, _ name: String) throws -> Int {
        guard let value = Int(field), 0 ... H2OCacheCore.mostTokens ~= value else {
            throw H2OCacheError.damaged(reason: "\(name) is \"\(field)\", not a count")
        }
        return value
    }
}

/// A value's JSON with its keys in order.
package func json(_ value: some Encodable) -> String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    do {
        return String(decoding: try encoder.encode(value), as: UTF8.self)
    } catch {
        preconditionFailure("What is saved has only finite numbers, but: \(error)")
    }
}

/// - Throws: ``H2OCacheError/damaged(reason:file:)``
package func decode<Value: Decodable>(_ type: Value.Type, _ text: String?) throws -> Value {
    guard let text else {
        throw H2OCacheError.damaged(reason: "a text that describes it is missing")
    }
    do {
        return try JSONDecoder().decode(type, from: Data(text.utf8))
    } catch is DecodingError {
        throw H2OCacheError.damaged(reason: "a text that describes it is \(text.prefix(80))")
    }
}
