import Foundation

/// The structure of generated content. It encodes and decodes as JSON Schema.
public struct GenerationSchema: Sendable, Codable, Equatable, CustomStringConvertible {
    let schema: JSON

    init(_ schema: JSON) { self.schema = schema }

    public init(from decoder: any Decoder) throws { schema = try JSON(from: decoder) }

    public func encode(to encoder: any Encoder) throws { try schema.encode(to: encoder) }

    /// The schema's title.
    public var name: String {
        guard case .object(let fields) = schema, case .string(let title) = fields["title"] else {
            return ""
        }
        return title
    }

    public var description: String { schema.description }
}
