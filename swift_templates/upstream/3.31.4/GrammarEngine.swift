import MLXLMCommon

/// Where mlx-swift-lm makes grammars for the vocabulary of a model; 3.31.4 has no engine for
/// that. The same names mean the same with other versions.
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
