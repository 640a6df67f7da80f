/// What made the caches of a conversation: the tokens that they have read, step by step.
///
/// The same model, settings and steps make the same caches, in Swift and in Python.
public struct H2OTrace: Codable, Hashable, Sendable {
    /// One call of the model.
    public enum Step: Hashable, Sendable {
        /// Tokens of a prompt that were read at once.
        case read([Int])
        /// A token that the model chose, and then read.
        case generated(Int)

        package var ids: [Int] {
            switch self {
            case .read(let ids): ids
            case .generated(let id): [id]
            }
        }
    }

    /// In order.
    public var steps: [Step]

    public init(steps: [Step]) { self.steps = steps }

    /// The ids of all tokens, in order.
    public var ids: [Int] { steps.flatMap(\.ids) }
}

/// As JSON, a step is `{"read": [1, 2]}` or `{"generated": 3}`.
extension H2OTrace.Step: Codable {
    private enum Key: String, CodingKey {
        case read, generated
    }

    public init(from decoder: any Decoder) throws {
        let fields = try decoder.container(keyedBy: Key.self)
        if let ids = try fields.decodeIfPresent([Int].self, forKey: .read) {
            self = .read(ids)
        } else {
            self = .generated(try fields.decode(Int.self, forKey: .generated))
        }
    }

    public func encode(to encoder: any Encoder) throws {
        var fields = encoder.container(keyedBy: Key.self)
        switch self {
        case .read(let ids): try fields.encode(ids, forKey: .read)
        case .generated(let id): try fields.encode(id, forKey: .generated)
        }
    }
}

extension H2OSession {
    /// The ids of the tokens that made the present caches: what was read, in which chunks, and what
    /// the model wrote. Tokens that belong to the transcript no more, such as dropped thoughts, are
    /// not among them.
    public var trace: H2OTrace {
        get async { await conversation.trace }
    }
}
