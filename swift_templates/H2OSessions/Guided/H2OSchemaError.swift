import Foundation

/// Why a reply cannot be held to a JSON Schema. `place` is a JSON pointer into the schema; "" is
/// the whole of it.
public enum H2OSchemaError: LocalizedError, Hashable, Sendable {
    /// The text is not JSON, or an object in it has two members of one name.
    case notJSON
    /// The value of a keyword is not what JSON Schema asks for; `expected` says what that is.
    case notASchema(place: String, expected: String)
    /// No value has the form that is described there.
    case noInstance(place: String)
    /// The keyword, or its use together with the others there, cannot be held to.
    case unsupported(keyword: String, place: String)
    /// The grammar engine refuses the schema, for the reason that it gives.
    case refused(reason: String)
    /// The shortest reply of this form has more tokens than a reply may have; `tokens` are enough.
    case noRoom(tokens: Int, atMost: Int)
    /// This package's version of mlx-swift-lm has no grammar engine; `version` does.
    case unavailable(version: String)

    public var errorDescription: String? {
        switch self {
        case .notJSON:
            "The schema is not JSON, or an object in it has two members of one name. Give the "
                + "text of one JSON Schema."
        case .notASchema(let place, let expected):
            "\(Self.shown(place)) is not as in a JSON Schema. Expected is \(expected)."
        case .noInstance(let place):
            "\(Self.shown(place)) describes a value that cannot exist. Correct its limits, or "
                + "give what refers to itself a way to end."
        case .unsupported(let keyword, let place):
            "\(Self.shown(place)) uses \"\(keyword)\" in a way that generated text cannot be held "
                + "to. Leave it out, and check the finished value for it."
        case .refused(let reason):
            "The grammar engine refuses the schema: \(reason). Simplify it."
        case .noRoom(let tokens, let most):
            "A reply in the form of the schema has \(tokens) tokens or more, and \(most) are "
                + "allowed. Raise maxTokens or ask for less."
        case .unavailable(let version):
            "This package's version of mlx-swift-lm has no grammar engine. Package the model with "
                + "--upstream-version \(version)."
        }
    }

    private static func shown(_ place: String) -> String {
        place.isEmpty ? "The schema" : "The schema at \(place)"
    }
}
