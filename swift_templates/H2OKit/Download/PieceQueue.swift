/// Which pieces are to be fetched, and which are on their way.
package struct PieceQueue {
    /// How often a piece is asked for before the download fails.
    package static let attempts = 3

    private var waiting: [ModelPiece]
    /// By the number of their task.
    private var underway = [Int: (piece: ModelPiece, received: Int)]()
    private var failures = [ModelPiece: Int]()
    /// Bytes of pieces that are there.
    private var complete: Int

    /// - Parameters:
    ///   - missing: the pieces to fetch
    ///   - size: bytes of the model
    package init(_ missing: [ModelPiece], ofModelWith size: Int) {
        waiting = missing.reversed()
        complete = size - missing.map(\.count).reduce(0, +)
    }

    package var isEmpty: Bool { waiting.isEmpty && underway.isEmpty }

    /// Bytes that are there or have arrived.
    package var received: Int { complete + underway.values.map(\.received).reduce(0, +) }

    package var tasks: Set<Int> { Set(underway.keys) }

    /// The next piece to ask for, if fewer are on their way than may be.
    package mutating func next(atMost limit: Int) -> ModelPiece? {
        underway.count < limit ? waiting.popLast() : nil
    }

    package mutating func started(_ piece: ModelPiece, task: Int) {
        waiting.removeAll { $0 == piece }
        underway[task] = (piece, 0)
    }

    package mutating func arrived(_ bytes: Int, task: Int) {
        underway[task]?.received = bytes
    }

    /// A task has put its piece to its place, or has not. What failed by chance waits again.
    ///
    /// - Throws: the error, if it is not by chance or comes again and again
    package mutating func ended(
        _ piece: ModelPiece, task: Int, _ error: H2OLoadingError?
    ) throws(H2OLoadingError) {
        let isOurs = underway.removeValue(forKey: task) != nil
        guard let error else {
            // It may have been fetched while the app did not run.
            if isOurs || waiting.contains(piece) { complete += piece.count }
            waiting.removeAll { $0 == piece }
            return
        }
        guard isOurs else { return }
        if error != .stopped {
            failures[piece, default: 0] += 1
            guard error.isTransient, failures[piece, default: 0] < Self.attempts else {
                throw error
            }
        }
        waiting.append(piece)
    }

    /// All pieces wait again.
    package mutating func restart() {
        waiting += underway.values.map(\.piece).sorted { $0.name > $1.name }
        underway = [:]
    }
}

extension H2OLoadingError {
    /// Whether the same request may succeed a moment later.
    fileprivate var isTransient: Bool {
        switch self {
        case .network, .server(.content, _): true
        case .server(.status(let status), _): status >= 500
        default: false
        }
    }
}
