import H2OGrammar
import MLX
import MLXLMCommon

/// Allows only tokens with which a reply can still become an instance of a schema. If the reply has
/// a limit of tokens, also ends it in time.
package struct SchemaProcessor: LogitProcessor {
    /// The error of the grammar after which the reply is not valid; nil if there is none.
    package private(set) var failure: H2OSessionError?

    private let grammar: any TokenGrammar
    private let closing: ClosingTokens
    private var hasEnded = false
    /// The mask of tokens that may come next; nil if any may.
    private var allowed: [UInt32]?
    /// The number of tokens that the reply may still have, including the token that ends it; nil
    /// without a limit.
    private var tokensLeft: Int?
    /// The number of tokens until the processor looks for the shortest end again.
    private var pause = 0
    /// The remaining tokens of the reply, as soon as there is no room for other tokens; nil before
    /// that.
    private var way: ArraySlice<Int>?

    /// The number of tokens to keep in reserve, because one more token of the model's choice can make
    /// the shortest end longer.
    private let reserve: Int
    private static let leastReserve = 8
    /// The largest limit that is tried, so that an error can say which limit would be enough.
    private static let farthest = 4096

    /// - Parameter longestEnd: the most tokens by which one more token can lengthen the shortest end
    /// - Throws: `TokenGrammarError`, ``H2OSessionError/noRoomForSchema(tokens:atMost:)``
    fileprivate init(
        _ grammar: any TokenGrammar, closing: ClosingTokens, longestEnd: Int, atMost most: Int?
    ) throws {
        reserve = Self.leastReserve + longestEnd
        self.grammar = grammar
        self.closing = closing
        tokensLeft = most
        if let most {
            guard try wayToEnd(atMost: most + 1).count <= most else {
                let enough = try wayToEnd(atMost: max(most + 1, Self.farthest)).count
                throw H2OSessionError.noRoomForSchema(tokens: enough, atMost: most)
            }
        }
        try look()
    }

    package mutating func prompt(_ prompt: MLXArray) {}

    package func process(logits: MLXArray) -> MLXArray {
        guard let allowed else { return logits }
        let count = logits.dim(-1)
        var penalties = [Float](repeating: -.infinity, count: count)
        for (index, word) in allowed.enumerated() where word != 0 {
            for bit in 0 ..< 32 where word >> UInt32(bit) & 1 == 1 && index * 32 + bit < count {
                penalties[index * 32 + bit] = 0
            }
        }
        return logits + MLXArray(penalties).asType(logits.dtype)
    }

    package mutating func didSample(token: MLXArray) {
        // The generator is one token ahead, so it asks for one more token after the end.
        guard failure == nil, !hasEnded else { return }
        let token = token.asArray(Int32.self).first.map(Int.init) ?? closing.end
        guard token != closing.end else {
            hasEnded = true
            allowed = nil
            return
        }
        do {
            try grammar.accept(token)
            tokensLeft = tokensLeft.map { $0 - 1 }
            way = way?.dropFirst()
            try look()
        } catch {
            failure = H2OSessionError(error)
        }
    }

    /// Computes which tokens are allowed next.
    private mutating func look() throws {
        try lookForEnd()
        guard let next = way?.first else {
            allowed = try grammar.allowed()
            return
        }
        var only = [UInt32](repeating: 0, count: next / 32 + 1)
        only[next / 32] = 1 << UInt32(next % 32)
        allowed = only
    }

    /// Begins the shortest end when there is just enough room for it. The less room there is, the
    /// more often the processor looks for it.
    private mutating func lookForEnd() throws {
        guard let tokensLeft, way == nil else { return }
        guard pause == 0 else {
            pause -= 1
            return
        }
        let end = try wayToEnd(atMost: tokensLeft)
        let room = tokensLeft - end.count
        if room < reserve { way = end[...] } else { pause = room / reserve - 1 }
    }

    /// Returns at most `most` tokens, with which the reply ends soon.
    private func wayToEnd(atMost most: Int) throws -> [Int] {
        let here = grammar.count
        var way = [Int]()
        while way.count < most, way.last != closing.end {
            let next = closing.next(of: try grammar.allowed())
            way.append(next)
            if next != closing.end { try grammar.accept(next) }
        }
        try grammar.goBack(to: here)
        return way
    }
}

extension [UInt32] {
    fileprivate func allows(_ token: Int) -> Bool {
        token / 32 < count && self[token / 32] >> UInt32(token % 32) & 1 == 1
    }
}

/// The tokens that bring a JSON value to its end.
private struct ClosingTokens {
    let end: Int
    private let quote: [Int]
    private let brackets: [Int]
    private let others: [Int]

    init(tokenizer: any Tokenizer, endOfTurn: Int) {
        end = endOfTurn
        quote = ["\""].compactMap(tokenizer.convertTokenToId)
        brackets = ["}", "]"].compactMap(tokenizer.convertTokenToId)
        let begins = (0 ... 9).map(String.init) + ["n", "t", "f"]
        others = ([","] + begins).compactMap(tokenizer.convertTokenToId)
    }

    /// The token that ends the reply, if it is allowed. Otherwise an allowed token that closes an
    /// open string, array or object, or separates or begins values, in this order. Otherwise the
    /// first allowed token. If both brackets are allowed, the place is inside a string, where they
    /// close nothing.
    func next(of allowed: [UInt32]?) -> Int {
        guard let allowed else { return end }
        let closers = brackets.allSatisfy(allowed.allows) ? quote : brackets + quote
        return ([end] + closers + others).first(where: allowed.allows)
            ?? allowed.firstIndex { $0 != 0 }.map { $0 * 32 + allowed[$0].trailingZeroBitCount }
            ?? end
    }
}

/// Makes the processors for a model's replies with a schema, one at a time, and keeps the grammars
/// of the schemas used last. Each model has one such object.
package final class SchemaGrammars {
    private let closing: ClosingTokens
    private let compile: (String) throws -> any TokenGrammar
    /// The grammars of the schemas used last, in the order of their last use.
    private var grammars = [(schema: H2OSchema, grammar: any TokenGrammar)]()

    private static let most = 8

    /// - Parameters:
    ///   - tokenizer: the model's tokenizer
    ///   - endOfTurn: the token that ends a turn in the model's template
    ///   - stops: all tokens that end a reply
    package convenience init(tokenizer: any Tokenizer, endOfTurn: Int, stops: Set<Int>) {
        var engine: GrammarEngine?
        self.init(tokenizer: tokenizer, endOfTurn: endOfTurn) { grammar in
            let current =
                try engine
                ?? GrammarEngine(tokenizer: tokenizer, endOfTurn: endOfTurn) {
                    $0 != endOfTurn && (stops.contains($0) || tokenizer.isMark($0, named: $1))
                }
            engine = current
            return try current.grammar(grammar)
        }
    }

    /// - Parameter compile: compiles the text of a grammar
    package init(
        tokenizer: any Tokenizer, endOfTurn: Int,
        compile: @escaping (String) throws -> any TokenGrammar
    ) {
        self.compile = compile
        closing = ClosingTokens(tokenizer: tokenizer, endOfTurn: endOfTurn)
    }

    /// Returns a processor for one reply. It becomes invalid when the next one is requested.
    ///
    /// - Parameter most: the tokens that the reply may have, including the last one; nil for any
    ///   number
    /// - Throws: ``H2OSessionError``
    package func processor(for schema: H2OSchema, atMost most: Int?) throws -> SchemaProcessor {
        do {
            let index = grammars.firstIndex { $0.schema == schema }
            grammars.append(
                try index.map { grammars.remove(at: $0) } ?? (schema, compile(schema.grammar)))
            grammars = grammars.suffix(Self.most)
            let grammar = grammars[grammars.count - 1].grammar
            try grammar.goBack(to: 0)
            return try SchemaProcessor(
                grammar, closing: closing, longestEnd: schema.longestEnd, atMost: most)
        } catch let error as TokenGrammarError {
            throw H2OSessionError(error)
        }
    }
}

extension H2OSessionError {
    /// Converts an error of a grammar to an error of the session.
    fileprivate init(_ error: any Error) {
        switch error as? TokenGrammarError {
        case .refused(let reason), .failed(let reason):
            self = .invalidSchema(.refused(reason: reason))
        case nil: self = .invalidSchema(.refused(reason: "\(error)"))
        }
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
