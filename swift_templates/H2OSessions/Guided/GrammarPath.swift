import H2OGrammar

/// A grammar, and the tokens that it has gone on with. The engine of mlx-swift-lm cannot copy a
/// grammar (xgrammar 0.1.30), but go back in one.
final class GrammarPath {
    private let make: () throws -> any TokenGrammar
    private let grammar: any TokenGrammar
    private var tokens = [Int]()

    /// - Parameter make: makes a grammar, at its begin
    init(_ make: @escaping () throws -> any TokenGrammar) throws {
        self.make = make
        grammar = try make()
    }

    func allowed() throws -> [UInt32]? { try grammar.allowed() }

    func accept(_ token: Int) throws {
        try grammar.accept(token)
        tokens.append(token)
    }

    func restart() throws { try goBack(tokens.count) }

    /// Does something from here on, and comes back.
    func excursion<T>(_ work: (GrammarPath) throws -> T) throws -> T {
        let here = tokens.count
        let result = try work(self)
        try goBack(tokens.count - here)
        return result
    }

    /// An independent path to the same place.
    func copy() throws -> GrammarPath {
        let copy = try GrammarPath(make)
        for token in tokens { try copy.accept(token) }
        return copy
    }

    private func goBack(_ count: Int) throws {
        try grammar.goBack(count)
        tokens.removeLast(count)
    }
}
