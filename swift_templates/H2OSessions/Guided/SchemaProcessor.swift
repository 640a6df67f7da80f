import MLX
import MLXGuidedGeneration
import MLXLMCommon

/// Says after each token which tokens are allowed next, so that the whole text follows a schema.
package protocol TokenGrammar: AnyObject {
    /// The tokens that may come next: bit `i % 32` of word `i / 32` stands for token `i`. nil for
    /// all tokens.
    func allowed() throws -> [UInt32]?

    /// Adds an allowed token.
    func accept(_ token: Int) throws

    /// Removes all tokens.
    func restart() throws
}

/// Allows only tokens with which a reply can still become an instance of a schema. Near its limit of
/// tokens, the reply is biased toward its end, as in mlx-swift-lm's `GuidedGenerationLoop`.
package struct SchemaProcessor: LogitProcessor {
    /// The error of the grammar after which the reply is not valid; nil if there is none.
    package private(set) var failure: H2OSessionError?

    private let grammar: any TokenGrammar
    private let biases: ReplyBiases
    private var hasEnded = false
    /// The mask of tokens that may come next; nil if any may.
    private var allowed: [UInt32]?
    /// The number of tokens before the bias toward the end begins; nil without a limit.
    private var tokensBeforeEnd: Int?
    private var spaces: WhitespaceRunTracker

    fileprivate init(
        _ grammar: any TokenGrammar, _ biases: ReplyBiases, tokensBeforeEnd: Int?
    ) throws {
        (self.grammar, self.biases, self.tokensBeforeEnd) = (grammar, biases, tokensBeforeEnd)
        spaces = WhitespaceRunTracker(whitespaceTokenIDs: biases.spaces)
        allowed = try grammar.allowed()
    }

    package mutating func prompt(_ prompt: MLXArray) {}

    package func process(logits: MLXArray) -> MLXArray {
        guard let allowed else { return logits }
        let count = logits.dim(-1)
        let isClosing = tokensBeforeEnd.map { $0 <= 0 } ?? false
        let isAfterValue =
            !allowed.allows(biases.quote) && biases.separators.contains(where: allowed.allows)
        var values = [Float](repeating: -.infinity, count: count)
        for (index, word) in allowed.enumerated() where word != 0 {
            for bit in 0 ..< 32 where word >> UInt32(bit) & 1 == 1 && index * 32 + bit < count {
                let token = index * 32 + bit
                values[token] = isClosing ? biases.closing(token, isAfterValue) : 0
                if spaces.isActive, biases.spaces.contains(token) { values[token] -= 200 }
            }
        }
        return logits + MLXArray(values).asType(logits.dtype)
    }

    package mutating func didSample(token: MLXArray) {
        // The generator is one token ahead, so it asks for one more token after the end.
        guard failure == nil, !hasEnded else { return }
        let token = token.asArray(Int32.self).first.map(Int.init) ?? biases.end
        guard token != biases.end else {
            hasEnded = true
            allowed = nil
            return
        }
        do {
            try grammar.accept(token)
            tokensBeforeEnd = tokensBeforeEnd.map { $0 - 1 }
            _ = spaces.record(tokenID: token)
            allowed = try grammar.allowed()
        } catch {
            failure = H2OSessionError(grammar: error)
        }
    }
}

extension [UInt32] {
    fileprivate func allows(_ token: Int?) -> Bool {
        guard let token else { return false }
        return token / 32 < count && self[token / 32] >> UInt32(token % 32) & 1 == 1
    }
}

/// What is added to the logits of a vocabulary's tokens.
private struct ReplyBiases {
    let end: Int
    let quote: Int?
    /// A comma, and the brackets that close.
    let separators: [Int]
    /// Tokens of nothing but white space.
    let spaces: Set<Int>
    private let digits: Set<Int>
    private let closing: [Float]

    init(_ tokenizer: any Tokenizer, endOfTurn: Int) {
        end = endOfTurn
        quote = tokenizer.convertTokenToId("\"")
        separators = [",", "}", "]"].compactMap(tokenizer.convertTokenToId)
        digits = Set((0 ... 9).compactMap { tokenizer.convertTokenToId("\($0)") })
        spaces = WhitespaceTokenBias.compute(tokenizer: tokenizer).tokenIDs
        closing = ClosingTokenBias.compute(tokenizer: tokenizer, eosTokenId: endOfTurn)
            .asArray(Float.self)
    }

    /// The bias toward the end of the reply. mlx-swift-lm's own bias favors one more digit over the
    /// comma after a number, so that the number would not end.
    ///
    /// - Parameter isAfterValue: whether a separator may follow here, outside of strings
    func closing(_ token: Int, _ isAfterValue: Bool) -> Float {
        let bias = closing.indices.contains(token) ? closing[token] : 0
        guard isAfterValue else { return bias }
        return digits.contains(token) ? 0 : separators.contains(token) ? max(bias, 50) : bias
    }
}

/// Makes the processors for a model's replies with a schema, one at a time, and keeps the grammars
/// of the schemas used last. Each model has one such object.
package final class SchemaGrammars {
    private let tokenizer: any Tokenizer
    private let compile: (String) throws -> any TokenGrammar
    private lazy var biases = ReplyBiases(tokenizer, endOfTurn: endOfTurn)
    private let endOfTurn: Int
    /// The grammars of the schemas used last, in the order of their last use.
    private var grammars = [(schema: H2OSchema, grammar: any TokenGrammar)]()

    private static let most = 8

    /// - Parameters:
    ///   - tokenizer: the model's tokenizer
    ///   - endOfTurn: the token that ends a turn in the model's template
    ///   - stops: all tokens that end a reply
    package convenience init(tokenizer: any Tokenizer, endOfTurn: Int, stops: Set<Int>) {
        var vocabulary: GrammarTokenizer?
        self.init(tokenizer: tokenizer, endOfTurn: endOfTurn) { schema in
            let current = try vocabulary ?? GrammarTokenizer(tokenizer, endOfTurn, stops)
            vocabulary = current
            return EngineGrammar(try GrammarConstraint(tokenizer: current, jsonSchema: schema))
        }
    }

    /// - Parameter compile: compiles a schema for the engine
    package init(
        tokenizer: any Tokenizer, endOfTurn: Int,
        compile: @escaping (String) throws -> any TokenGrammar
    ) {
        (self.tokenizer, self.endOfTurn, self.compile) = (tokenizer, endOfTurn, compile)
    }

    /// Returns a processor for one reply. It becomes invalid when the next one is requested.
    ///
    /// - Parameter most: the tokens that the reply may have, including the last one; nil for any
    ///   number
    /// - Throws: ``H2OSessionError/invalidSchema(_:)``
    package func processor(for schema: H2OSchema, atMost most: Int?) throws -> SchemaProcessor {
        do {
            let index = grammars.firstIndex { $0.schema == schema }
            grammars.append(
                try index.map { grammars.remove(at: $0) } ?? (schema, compile(schema.forEngine)))
            grammars = grammars.suffix(Self.most)
            let grammar = grammars[grammars.count - 1].grammar
            try grammar.restart()
            // The reserve of mlx-swift-lm's executor.
            let tokens = CompletionReserve.estimate(
                schemaJSON: schema.forEngine, tokenizer: tokenizer)
            return try SchemaProcessor(
                grammar, biases, tokensBeforeEnd: most.map { $0 - max(3 * tokens, $0 / 4) })
        } catch {
            throw H2OSessionError(grammar: error)
        }
    }
}

extension GrammarTokenizer {
    /// The vocabulary in which marks and tokens that end a reply have no text, so that the engine
    /// allows only the token that ends a turn.
    fileprivate convenience init(
        _ tokenizer: any Tokenizer, _ endOfTurn: Int, _ stops: Set<Int>
    ) throws {
        let extracted = TokenizerVocabExtractor.extractForGrammar(from: tokenizer)
        let pieces = extracted.vocab.enumerated().map { token, piece in
            let isText =
                token == endOfTurn
                || !stops.contains(token) && !tokenizer.isMark(token, named: piece)
            return isText ? piece : ""
        }
        try self.init(
            vocab: pieces, vocabType: extracted.vocabType, eosTokenId: Int32(endOfTurn))
    }
}

/// A grammar that calls mlx-swift-lm's constraint.
private final class EngineGrammar: TokenGrammar {
    private let constraint: GrammarConstraint
    private var count: Int32 = 0

    init(_ constraint: GrammarConstraint) { self.constraint = constraint }

    func allowed() throws -> [UInt32]? {
        let mask = try constraint.computeMask()
        return mask.needsApply ? mask.mask.map { UInt32(bitPattern: $0) } : nil
    }

    func accept(_ token: Int) throws {
        _ = try constraint.commitToken(Int32(token))
        count += 1
    }

    // Undoes tokens, since `clone()` of the constraint always fails in this version of the engine.
    func restart() throws {
        try constraint.rollback(count)
        count = 0
    }
}

extension H2OSessionError {
    /// Converts an error of a grammar to an error of the session.
    fileprivate init(grammar error: any Error) {
        self = error as? Self ?? .invalidSchema(.refused(reason: "\(error)"))
    }
}

extension Tokenizer {
    /// Whether a token has a name but no text, like a template's special tokens. A grammar would
    /// treat its name as text, but the decoder leaves it out.
    fileprivate func isMark(_ token: Int, named piece: String) -> Bool {
        let isNamed =
            piece.hasPrefix("<") && piece.hasSuffix(">")
            || piece.hasPrefix("[") && piece.hasSuffix("]")
        return isNamed && piece.utf8.count > 2
            && decode(tokenIds: [token], skipSpecialTokens: true).isEmpty
    }
}
