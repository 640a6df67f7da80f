import MLXLMCommon

/// A stand-in for the grammar engine, in which every call fails.
public final class GrammarEngine {
    /// - Throws: ``TokenGrammarError/failed(_:)``
    public init(
        tokenizer: any Tokenizer, endOfTurn: Int, excluded: (_ token: Int, _ piece: String) -> Bool
    ) throws {
        throw TokenGrammarError.failed("the CPU stand-in has no grammar engine")
    }

    /// - Throws: ``TokenGrammarError/failed(_:)``
    public func grammar(_ text: String) throws -> any TokenGrammar {
        throw TokenGrammarError.failed("the CPU stand-in has no grammar engine")
    }
}
