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
            return .server(.noRanges, path: piece.path)
        case 200, 206:
            let whole = found ?? (piece.isWholeFile ? max(Int(size), piece.fileSize) : nil)
            guard let whole, whole != piece.fileSize else { return nil }
            return .server(.size(expected: piece.fileSize, found: whole), path: piece.path)
        case 416:
            let problem = H2OLoadingError.ServerProblem.size(
                expected: piece.fileSize, found: found ?? 0)
            return .server(problem, path: piece.path)
        default:
            return .server(.status(response.statusCode), path: piece.path)
        }
    }

    private func place(_ piece: ModelPiece, _ file: URL) -> H2OLoadingError? {
        do {
            let isRight = try store.put(piece, from: file)
            return isRight ? nil : .server(.content(offset: piece.offset), path: piece.path)
        } catch {
            return .notStored(reason: error.localizedDescription)
        }
    }
}
