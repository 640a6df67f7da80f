import Foundation

#if canImport(FoundationNetworking)
    import FoundationNetworking
#endif

/// Downloads pieces from a server and moves them to their places. On Apple's systems this
/// continues while the app does not run.
final class PieceTransfer: NSObject, URLSessionDownloadDelegate, Sendable {
    enum Event: Sendable {
        /// Bytes of a task's piece that have arrived.
        case arrived(Int, task: Int)
        /// A task has ended: its piece is in its place, or the error says why it is not.
        case ended(ModelPiece, task: Int, H2OLoadingError?)
        /// The user stops the download.
        case stop
        /// The user has changed which networks are allowed.
        case restart
    }

    let events: AsyncStream<Event>
    private let send: AsyncStream<Event>.Continuation
    private let store: DownloadStore
    private let source: URL
    /// Pieces by the description of their tasks.
    private let pieces: [String: ModelPiece]

    /// - Parameters:
    ///   - source: the folder on the server
    ///   - store: the destination of the pieces
    init(from source: URL, to store: DownloadStore) {
        (events, send) = AsyncStream.makeStream()
        (self.source, self.store) = (source, store)
        let described = store.pieces.map { ("\(store.version) \($0.name)", $0) }
        pieces = Dictionary(uniqueKeysWithValues: described)
    }

    /// Requests a piece.
    ///
    /// - Returns: the number of the task
    func start(
        _ piece: ModelPiece, in session: URLSession, allowsExpensiveNetwork: Bool
    ) -> Int {
        var request = URLRequest(url: source.appending(path: piece.path))
        // Refuses compression, because a compressed answer contains other bytes than the requested
        // range.
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

    /// The piece of a task that this or an earlier launch started; nil for a task of another
    /// model.
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

    /// Returns why an answer is not the requested piece; nil if it may be the piece. `size` is the
    /// number of bytes of the answer.
    private func problem(
        _ piece: ModelPiece, _ response: URLResponse?, _ size: Int64
    ) -> H2OLoadingError? {
        guard let response = response as? HTTPURLResponse else { return nil }
        // "bytes 0-9/10", or "bytes */10" if the file is too short.
        let range = response.value(forHTTPHeaderField: "Content-Range")
        let statedSize = range.flatMap { Int($0.split(separator: "/").last ?? "") }
        switch response.statusCode {
        case 200 where !piece.isWholeFile:
            return .serverWithoutRanges(path: piece.path)
        case 200, 206:
            let fileSize = statedSize ?? (piece.isWholeFile ? max(Int(size), piece.fileSize) : nil)
            guard let fileSize, fileSize != piece.fileSize else { return nil }
            return .serverSize(expected: piece.fileSize, found: fileSize, path: piece.path)
        case 416:
            return .serverSize(expected: piece.fileSize, found: statedSize ?? 0, path: piece.path)
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

/// The pieces to download, and the pieces that are being downloaded.
package struct PieceQueue {
    /// The number of requests for a piece before the download fails.
    package static let attempts = 3

    private var waiting: [ModelPiece]
    /// Pieces by the number of their task.
    private var underway = [Int: (piece: ModelPiece, received: Int)]()
    private var failures = [ModelPiece: Int]()
    /// Bytes of the pieces that have arrived.
    private var complete: Int

    /// - Parameters:
    ///   - missing: the pieces to download
    ///   - size: bytes of the model
    package init(_ missing: [ModelPiece], ofModelWith size: Int) {
        waiting = missing.reversed()
        complete = size - missing.map(\.count).reduce(0, +)
    }

    package var isEmpty: Bool { waiting.isEmpty && underway.isEmpty }

    /// Bytes that have arrived, including those of incomplete pieces.
    package var received: Int { complete + underway.values.map(\.received).reduce(0, +) }

    package var tasks: Set<Int> { Set(underway.keys) }

    /// The next piece to request; nil if enough are being downloaded.
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

    /// Records that a task has ended. After a temporary error its piece waits again.
    ///
    /// - Throws: the error, if it is permanent or has occurred too often
    package mutating func ended(
        _ piece: ModelPiece, task: Int, _ error: H2OLoadingError?
    ) throws(H2OLoadingError) {
        let isOurs = underway.removeValue(forKey: task) != nil
        guard let error else {
            // The piece may have arrived while the app did not run.
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

    /// Makes all pieces wait again.
    package mutating func restart() {
        waiting += underway.values.map(\.piece).sorted { $0.name > $1.name }
        underway = [:]
    }
}

extension H2OLoadingError {
    /// Whether the error is temporary, so that the same request may succeed later.
    fileprivate var isTransient: Bool {
        switch self {
        case .network, .serverContent: true
        case .serverStatus(let status, _): status >= 500
        default: false
        }
    }
}

/// A part of a model's file that is downloaded and checked separately.
package struct ModelPiece: Hashable, Sendable {
    /// The file's path, relative to the model's folder.
    package let path: String
    /// The first byte in the file.
    package let offset: Int
    /// Bytes of the piece.
    package let count: Int
    /// Bytes of the file.
    package let fileSize: Int
    /// 64 lowercase hexadecimal digits.
    package let sha256: String

    package var isWholeFile: Bool { count == fileSize }

    /// Identifies the piece among the pieces of its model.
    package var name: String { "\(offset) \(path)" }
}

extension ModelManifest {
    /// Bytes of all files.
    package var size: Int { files.map(\.size).reduce(0, +) }

    /// The pieces of all files, in order.
    ///
    /// - Throws: ``H2OLoadingError/noPieces`` if the manifest has no digests of pieces, or another
    ///   number of digests than the sizes require, or a path outside the folder
    package func pieces() throws(H2OLoadingError) -> [ModelPiece] {
        guard let pieceSize, pieceSize > 0 else { throw .noPieces }
        var pieces = [ModelPiece]()
        for file in files {
            let offsets = stride(from: 0, to: file.size, by: pieceSize)
            guard let digests = file.pieces, digests.count == offsets.reduce(0, { n, _ in n + 1 }),
                file.isInside
            else { throw .noPieces }
            pieces += zip(offsets, digests).map { offset, digest in
                ModelPiece(
                    path: file.path, offset: offset, count: min(pieceSize, file.size - offset),
                    fileSize: file.size, sha256: digest)
            }
        }
        return pieces
    }
}
