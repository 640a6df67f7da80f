/// Says after each token which tokens are allowed next, so that the whole text follows a grammar.
public protocol TokenGrammar: AnyObject {
    /// The tokens that may come next: bit `i % 32` of word `i / 32` stands for token `i`. nil for
    /// all tokens.
    ///
    /// - Throws: ``TokenGrammarError``
    func allowed() throws -> [UInt32]?

    /// Adds an allowed token.
    ///
    /// - Throws: ``TokenGrammarError``
    func accept(_ token: Int) throws

    /// The number of tokens so far.
    var count: Int { get }

    /// Removes the newest tokens, so that `count` are left.
    ///
    /// - Throws: ``TokenGrammarError``
    func goBack(to count: Int) throws
}

/// An error of a grammar engine; a session throws its own error instead.
public enum TokenGrammarError: Error, Hashable, Sendable {
    /// The engine refuses the grammar and gives this reason.
    case refused(String)
    /// The engine failed and gives this reason.
    case failed(String)
}
