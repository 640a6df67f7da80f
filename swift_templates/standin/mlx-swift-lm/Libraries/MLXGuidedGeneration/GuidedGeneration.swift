import MLX
import MLXLMCommon

// A stand-in for the parts of guided generation that sessions use. It has no grammar engine, so it
// refuses every schema.

public enum GrammarError: Error {
    case constraintCompilationFailed(String)
}

public enum VocabType: Sendable { case raw }

public enum TokenizerVocabExtractor {
    public struct GrammarVocab {
        public let vocab: [String]
        public let vocabType: VocabType
    }

    public static func extractForGrammar(from tokenizer: any Tokenizer) -> GrammarVocab {
        GrammarVocab(vocab: vocabulary(of: tokenizer), vocabType: .raw)
    }
}

public final class GrammarTokenizer: Sendable {
    public init(vocab: [String], vocabType: VocabType, eosTokenId: Int32) throws {}
}

public struct MaskResult {
    public let mask: [Int32]
    public let needsApply: Bool
}

public final class GrammarConstraint: Sendable {
    public init(tokenizer: GrammarTokenizer, jsonSchema: String) throws {
        throw GrammarError.constraintCompilationFailed("the CPU stand-in has no grammar engine")
    }

    public func computeMask() throws -> MaskResult { MaskResult(mask: [], needsApply: false) }

    @discardableResult
    public func commitToken(_ token: Int32) throws -> Bool { true }

    public func rollback(_ count: Int32) throws {}
}

public enum CompletionReserve {
    /// A count of tokens that is right for some schemas of the tests.
    public static func estimate(
        schemaJSON: String, tokenizer: any Tokenizer, defaultReserve: Int = 64
    ) -> Int {
        schemaJSON.contains("array") ? 2 : defaultReserve
    }
}

public enum ClosingTokenBias {
    /// `[vocabulary]`: 200 for the token that ends the reply, 100 for quotes, closing brackets and
    /// digits.
    public static func compute(tokenizer: any Tokenizer, eosTokenId: Int?) -> MLXArray {
        let closing = Set("\"}]0123456789".map(String.init))
        return MLXArray(
            vocabulary(of: tokenizer).enumerated().map { token, piece -> Float in
                token == eosTokenId ? 200 : closing.contains(piece) ? 100 : 0
            })
    }
}

public enum WhitespaceTokenBias {
    public static func compute(tokenizer: any Tokenizer) -> (bias: MLXArray, tokenIDs: Set<Int>) {
        let spaces = vocabulary(of: tokenizer).map { piece in
            !piece.isEmpty && piece.allSatisfy { " \t\n\r".contains($0) }
        }
        return (
            MLXArray(spaces.map { $0 ? Float(-200) : 0 }),
            Set(spaces.indices.filter { spaces[$0] })
        )
    }
}

/// Becomes active for good after three tokens of white space in a row.
public struct WhitespaceRunTracker {
    private let tokens: Set<Int>
    private var count = 0
    public private(set) var isActive = false

    public init(threshold: Int = 3, whitespaceTokenIDs: Set<Int>) { tokens = whitespaceTokenIDs }

    public mutating func record(tokenID: Int) -> Bool {
        count = tokens.contains(tokenID) ? count + 1 : 0
        isActive = isActive || count >= 3
        return isActive
    }
}

private func vocabulary(of tokenizer: any Tokenizer) -> [String] {
    var pieces = [String]()
    while let piece = tokenizer.convertIdToToken(pieces.count) { pieces.append(piece) }
    return pieces
}
