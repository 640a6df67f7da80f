import MLXGuidedGeneration
import MLXLMCommon

/// Makes grammars for the vocabulary of a model, with the engine of mlx-swift-lm (xgrammar).
public final class GrammarEngine {
    private let vocabulary: GrammarTokenizer

    /// - Parameters:
    ///   - tokenizer: the model's tokenizer
    ///   - endOfTurn: the token that is allowed at the end of the text
    ///   - excluded: whether a token with this text is never allowed
    /// - Throws: ``TokenGrammarError``
    public init(
        tokenizer: any Tokenizer, endOfTurn: Int, excluded: (_ token: Int, _ piece: String) -> Bool
    ) throws {
        // Copies each piece to a Swift string once, because it may be a string of Objective-C.
        var pieces = [String]()
        while var piece = tokenizer.convertIdToToken(pieces.count) {
            piece.makeContiguousUTF8()
            pieces.append(piece)
        }
        guard pieces.indices.contains(endOfTurn) else {
            throw TokenGrammarError.failed("token \(endOfTurn) is not in the vocabulary")
        }
        let kind = VocabType(of: pieces)
        // The engine allows no token without text, except the one that ends the turn.
        for token in pieces.indices where excluded(token, pieces[token]) { pieces[token] = "" }
        vocabulary = try translated {
            try GrammarTokenizer(vocab: pieces, vocabType: kind, eosTokenId: Int32(endOfTurn))
        }
    }

    /// - Parameter text: rules in xgrammar's notation; the start rule is `root`
    /// - Throws: ``TokenGrammarError``
    public func grammar(_ text: String) throws -> any TokenGrammar {
        Grammar(try translated { try GrammarConstraint(tokenizer: vocabulary, grammar: text) })
    }
}

extension VocabType {
    /// How a vocabulary's pieces encode bytes, by the rules of `TokenizerVocabExtractor`.
    fileprivate init(of pieces: [String]) {
        if pieces.contains(where: { $0.utf8.count == 6 && $0.hasPrefix("<0x") }) {
            self = .byteFallback
        } else if pieces.contains(where: \.hasByteLetter) {
            self = .byteLevel
        } else {
            self = .raw
        }
    }
}

extension String {
    /// Whether a letter encodes a byte that does not print, as in GPT-2's vocabulary.
    fileprivate var hasByteLetter: Bool {
        unicodeScalars.contains { ("\u{100}" ... "\u{143}").contains($0) }
    }
}

/// A grammar that calls mlx-swift-lm's constraint.
private final class Grammar: TokenGrammar {
    private let constraint: GrammarConstraint
    private(set) var count = 0

    init(_ constraint: GrammarConstraint) {
        self.constraint = constraint
    }

    func allowed() throws -> [UInt32]? {
        let mask = try translated { try constraint.computeMask() }
        guard mask.needsApply else { return nil }
        return mask.mask.map { UInt32(bitPattern: $0) }
    }

    func accept(_ token: Int) throws {
        _ = try translated { try constraint.commitToken(Int32(token)) }
        count += 1
    }

    // Undoes tokens, since `clone()` of the constraint always fails in this version of the engine.
    func goBack(to count: Int) throws {
        try translated { try constraint.rollback(Int32(self.count - count)) }
        self.count = count
    }
}

private func translated<T>(_ work: () throws -> T) throws -> T {
    do {
        return try work()
    } catch let error as GrammarError {
        switch error {
        case .invalidJSONSchema(let why), .constraintCompilationFailed(let why):
            throw TokenGrammarError.refused(why)
        case .tokenizerCreationFailed(let why), .maskComputationFailed(let why),
            .commitFailed(let why), .rollbackFailed(let why), .forkFailed(let why):
            throw TokenGrammarError.failed(why)
        }
    }
}
