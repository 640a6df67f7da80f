import H2OGrammar
import MLXLMCommon

/// Makes the processors that hold a model's replies to schemas, one after the other, and keeps
/// the grammars of the schemas asked for last. One for a model.
package final class SchemaGrammars {
    private let closing: ClosingTokens
    private let compile: (String) throws -> any TokenGrammar
    /// The last used is the last.
    private var kept = [(schema: H2OSchema, path: GrammarPath)]()

    private static let most = 8

    /// - Parameters:
    ///   - tokenizer: the model's
    ///   - endOfTurn: the token that ends a turn in the model's template
    ///   - stops: all tokens that end a reply
    package convenience init(tokenizer: any Tokenizer, endOfTurn: Int, stops: Set<Int>) {
        var engine: GrammarEngine?
        self.init(tokenizer: tokenizer, endOfTurn: endOfTurn) { grammar in
            let made = try engine ?? GrammarEngine(tokenizer: tokenizer, endOfTurn: endOfTurn) {
                $0 != endOfTurn && (stops.contains($0) || tokenizer.isMark($0, named: $1))
            }
            engine = made
            return try made.grammar(grammar)
        }
    }

    /// - Parameter compile: makes a grammar of its text
    package init(
        tokenizer: any Tokenizer, endOfTurn: Int,
        compile: @escaping (String) throws -> any TokenGrammar
    ) {
        self.compile = compile
        closing = ClosingTokens(tokenizer: tokenizer, endOfTurn: endOfTurn)
    }

    /// A processor for one reply. It is of no use anymore when another one is asked for.
    ///
    /// - Parameter most: the tokens that the reply may have, its end included; nil is any number
    /// - Throws: ``H2OSessionError``
    package func processor(for schema: H2OSchema, atMost most: Int?) throws -> SchemaProcessor {
        do {
            let path = try self.path(of: schema)
            try path.restart()
            return try SchemaProcessor(
                path, closing: closing, longestEnd: schema.longestEnd, atMost: most)
        } catch let error as TokenGrammarError {
            throw H2OSessionError(error)
        }
    }

    private func path(of schema: H2OSchema) throws -> GrammarPath {
        if let index = kept.firstIndex(where: { $0.schema == schema }) {
            kept.append(kept.remove(at: index))
        } else {
            let compile = compile
            kept.append((schema, try GrammarPath { try compile(schema.grammar) }))
            kept = kept.suffix(Self.most)
        }
        return kept[kept.count - 1].path
    }
}

extension H2OSessionError {
    init(_ error: TokenGrammarError) {
        switch error {
        case .noEngine(let version): self = .noGrammarEngine(version: version)
        case .refused(let reason), .failed(let reason):
            self = .invalidSchema(.refused(reason: reason))
        }
    }
}

extension Tokenizer {
    /// Whether a token has a name and no text, as the marks of a template have. In a reply it
    /// would be read as text by a grammar and left out by who decodes it.
    fileprivate func isMark(_ token: Int, named piece: String) -> Bool {
        let isNamed = piece.hasPrefix("<") && piece.hasSuffix(">")
            || piece.hasPrefix("[") && piece.hasSuffix("]")
        return isNamed && piece.utf8.count > 2
            && decode(tokenIds: [token], skipSpecialTokens: true).isEmpty
    }
}
