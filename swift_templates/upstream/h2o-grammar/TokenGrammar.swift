/// Says token by token which one may come next, so that the whole is what a grammar
/// describes.
public protocol TokenGrammar: AnyObject {
    /// The tokens that may come next: bit `i % 32` of word `i / 32` is token `i`. nil: all of
    /// them.
    ///
    /// - Throws: ``TokenGrammarError``
    func allowed() throws -> [UInt32]?

    /// Goes on after a token that was allowed.
    ///
    /// - Throws: ``TokenGrammarError``
    func accept(_ token: Int) throws

    /// Takes the newest tokens back.
    ///
    /// - Throws: ``TokenGrammarError``
    func goBack(_ count: Int) throws
}

/// What a grammar engine cannot do; a session throws its own error in place of it.
public enum TokenGrammarError: Error, Hashable, Sendable {
    /// This version of mlx-swift-lm has none; `version` is one that does.
    case noEngine(version: String)
    /// The engine refuses the grammar, for the reason that it gives.
    case refused(String)
    /// The engine failed, for the reason that it gives.
    case failed(String)
}
