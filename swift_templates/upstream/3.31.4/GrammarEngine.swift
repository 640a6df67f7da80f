import MLXLMCommon

/// Makes grammars for the vocabulary of a model. mlx-swift-lm 3.31.4 has no engine for this, so
/// every call fails. The files for other versions declare the same names.
public final class GrammarEngine {
    /// Whether this version has an engine.
    public static let isAvailable = false

    /// - Throws: ``TokenGrammarError/noEngine(version:)``
    public init(
        tokenizer: any Tokenizer, endOfTurn: Int, excluded: (_ token: Int, _ piece: String) -> Bool
    ) throws {
        throw TokenGrammarError.noEngine(version: "main-2026-08-22")
    }

    /// - Throws: ``TokenGrammarError/noEngine(version:)``
    public func grammar(_ text: String) throws -> any TokenGrammar {
        throw TokenGrammarError.noEngine(version: "main-2026-08-22")
    }
}
