import Foundation

#if canImport(FoundationNetworking)
    import FoundationNetworking
#endif

/// Asks a server for pieces and puts them to their place. On Apple's systems that goes on while
/// the app does not run.
final class PieceTransfer: NSObject, URLSessionDownloadDelegate, Sendable {
    enum Event: Sendable {
        /// Bytes of a task's piece that have arrived.
        case arrived(Int, task: Int)
        /// The piece is in its place, or the error says why not.
        case ended(ModelPiece, task: Int, H2OLoadingError?)
        /// The user stops the download.
        case stop
        /// The user allows other networks than before.
        case restart
    }

    let events: AsyncStream<Event>
    private let send: AsyncStream<Event>.Continuation
    private let store: DownloadStore
    private let source: URL
    /// By the description of their tasks.
    private let pieces: [String: ModelPiece]

    /// - Parameters:
    ///   - source: the folder on the server
    ///   - store: where pieces are put
    init(from source: URL, to store: DownloadStore) {
        (events, send) = AsyncStream.makeStream()
        (self.source, self.store) = (source, store)
        let described = store.pieces.map { ("\(store.version) \($0.name)", $0) }
        pieces = Dictionary(uniqueKeysWithValues: described)
    }

    /// Asks for a piece.
    ///
    /// - Returns: the number of the task
    func start(
        _ piece: ModelPiece, in session: URLSession, allowsExpensiveNetwork: Bool
    ) -> Int {
        var request = URLRequest(url: source.appending(path: piece.path))
        // A compressed answer has other bytes than those that were asked for.
        request.setValue("identity", forHTTPHeaderField: "Accept-Encoding")
        if !piece.isWholeFile {
            let last = piece.offset + piece.count - 1
            request.setValue("bytes=\(piece.offset)-\(last)", forHTTPHeaderField: "Range")
        }
        #if canImport(Darwin)
            request.allowsExpensiveNetworkAccess = allowsExpensiveNetwork
            request.allowsConstrainedNetworkAccess = allowsExpensiveNetwork
        #endif
        let task = session.downloadTask(with: request)
        task.taskDescription = "\(store.version) \(piece.name)"
        task.resume()
        return task.taskIdentifier
    }

    /// The piece that a task of this or an earlier launch fetches; nil for one of another model.
    func piece(of task: URLSessionTask) -> ModelPiece? {
        task.taskDescription.flatMap { pieces[$0] }
    }

    func stop() { send.yield(.stop) }

    func restart() { send.yield(.restart) }

    func urlSession(
        _ session: URLSession, downloadTask: URLSessionDownloadTask, didWriteData bytes: Int64,
        totalBytesWritten: Int64, totalBytesExpectedToWrite expected: Int64
    ) {
        guard let piece = piece(of: downloadTask) else { return }
        let (task, size) = (downloadTask.taskIdentifier, max(totalBytesWritten, expected))
        if let problem = problem(piece, downloadTask.response, size) {
            send.yield(.ended(piece, task: task, problem))
            downloadTask.cancel()
        } else {
            send.yield(.arrived(Int(totalBytesWritten), task: task))
        }
    }

    func urlSession(
        _ session: URLSession, downloadTask: URLSessionDownloadTask,
        didFinishDownloadingTo location: URL
    ) {
        guard let piece = piece(of: downloadTask) else { return }
        let size = (try? location.resourceValues(forKeys: [.fileSizeKey]))?.fileSize ?? 0
        let problem =
            self.problem(piece, downloadTask.response, Int64(size)) ?? place(piece, location)
        send.yield(.ended(piece, task: downloadTask.taskIdentifier, problem))
    }

    func urlSession(
        _ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?
    ) {
        guard let error, let piece = piece(of: task) else { return }
        let isCanceled = (error as? URLError)?.code == .cancelled
        let reason = H2OLoadingError.network(reason: error.localizedDescription)
        send.yield(
            .ended(piece, task: task.taskIdentifier, isCanceled ? .stopped : reason))
    }

    /// Why an answer is not the piece; nil if it may be, or is not known yet. size: its bytes.
    private func problem(
        _ piece: ModelPiece, _ response: URLResponse?, _ size: Int64
    ) -> H2OLoadingError? {
        guard let response = response as? HTTPURLResponse else { return nil }
        // "bytes 0-9/10", and "bytes */10" where the file is too short.
        let range = response.value(forHTTPHeaderField: "Content-Range")
        let found = range.flatMap { Int($0.split(separator: "/").last ?? "") }
        switch response.statusCode {
        case 200 where !piece.isWholeFile:
            return .serverWithoutRanges(path: piece.path)
        case 200, 206:
            let whole = found ?? (piece.isWholeFile ? max(Int(size), piece.fileSize) : nil)
            guard let whole, whole != piece.fileSize else { return nil }
            return .serverSize(expected: piece.fileSize, found: whole, path: piece.path)
        case 416:
            return .serverSize(expected: piece.fileSize, found: found ?? 0, path: piece.path)
        default:
            return .serverStatus(response.statusCode, path: piece.path)
        }
    }

    private func place(_ piece: ModelPiece, _ file: URL) -> H2OLoadingError? {
        do {
            let isRight = try store.put(piece, from: file)
            return isRight ? nil : .serverContent(offset: piece.offset, path: piece.path)
        } catch {
            return .notStored(reason: error.localizedDescription)
        }
    }
}

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
        case .network, .serverContent: true
        case .serverStatus(let status, _): status >= 500
        default: false
        }
    }
}

/// A part of a model's file that is fetched and checked by itself.
package struct ModelPiece: Hashable, Sendable {
    /// Of the file, relative to the model's folder.
    package let path: String
    /// The first byte in the file.
    package let offset: Int
    /// Bytes.
    package let count: Int
    /// Bytes of the file.
    package let fileSize: Int
    /// 64 lowercase hexadecimal digits.
    package let sha256: String

    package init(path: String, offset: Int, count: Int, fileSize: Int, sha256: String) {
        (self.path, self.offset, self.count) = (path, offset, count)
        (self.fileSize, self.sha256) = (fileSize, sha256)
    }

    package var isWholeFile: Bool { count == fileSize }

    /// Tells it apart from the other pieces of its model.
    package var name: String { "\(offset) \(path)" }
}

extension ModelManifest {
    /// Bytes of all files.
    package var size: Int { files.map(\.size).reduce(0, +) }

    /// The pieces of all files, in order.
    ///
    /// - Throws: ``H2OLoadingError/noPieces`` if the manifest has no digests of pieces, or
    ///   not as many as the sizes ask for, or a path outside the folder
    package func pieces() throws(H2OLoadingError) -> [ModelPiece] {
        guard let pieceSize, pieceSize > 0 else { throw .noPieces }
        var found = [ModelPiece]()
        for file in files {
            let offsets = stride(from: 0, to: file.size, by: pieceSize)
            guard let digests = file.pieces, digests.count == offsets.reduce(0, { n, _ in n + 1 }),
                file.isInside
            else { throw .noPieces }
            found += zip(offsets, digests).map { offset, digest in
                ModelPiece(
                    path: file.path, offset: offset, count: min(pieceSize, file.size - offset),
                    fileSize: file.size, sha256: digest)
            }
        }
        return found
    }
}
