import Foundation

/// Parts of a reply on their way to a reader, for which generation does not wait.
///
/// Once many are unread, text that follows text becomes one part with it. So what waits is
/// bounded by the reply's text, however many tokens it has.
package final class PartBuffer: @unchecked Sendable {
    package typealias Part = H2OSession.Part

    /// Parts that wait before texts are put together.
    package static let separate = 64

    private let lock = NSLock()
    private var unread = [Part]()
    private var end: Result<Void, any Error>?
    private var reader: CheckedContinuation<Part?, any Error>?

    package init() {}

    package func add(_ part: Part) {
        let waiting = lock.withLock {
            if reader == nil { keep(part) }
            defer { reader = nil }
            return reader
        }
        waiting?.resume(returning: part)
    }

    /// Ends the stream after what is unread.
    package func finish(_ result: Result<Void, any Error>) {
        let waiting = lock.withLock {
            end = end ?? result
            defer { reader = nil }
            return reader
        }
        waiting?.resume(with: result.map { nil })
    }

    /// The next part; nil after the last one, and when the task is canceled.
    package func next() async throws -> Part? {
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { wait($0) }
        } onCancel: {
            finish(.success(()))
        }
    }

    private func wait(_ continuation: CheckedContinuation<Part?, any Error>) {
        let now: Result<Part?, any Error>? = lock.withLock {
            if !unread.isEmpty { return .success(unread.removeFirst()) }
            if let end { return end.map { nil } }
            reader = continuation
            return nil
        }
        if let now { continuation.resume(with: now) }
    }

    private func keep(_ part: Part) {
        if unread.count >= Self.separate, let joined = unread.last?.joined(part) {
            unread[unread.count - 1] = joined
        } else {
            unread.append(part)
        }
    }
}

extension PartBuffer {
    /// A stream of the parts. When nobody holds it any more, the reply is canceled.
    func stream(
        canceling reply: Task<H2OSession.Response, any Error>
    ) -> AsyncThrowingStream<Part, any Error> {
        let reader = Reader(self, reply)
        return AsyncThrowingStream { try await reader.next() }
    }

    /// Lives as long as its stream.
    private final class Reader: Sendable {
        private let buffer: PartBuffer
        private let reply: Task<H2OSession.Response, any Error>

        init(_ buffer: PartBuffer, _ reply: Task<H2OSession.Response, any Error>) {
            (self.buffer, self.reply) = (buffer, reply)
        }

        deinit { reply.cancel() }

        func next() async throws -> Part? { try await buffer.next() }
    }
}

extension H2OSession.Part {
    /// Both as one part, if both are text or both are thoughts.
    fileprivate func joined(_ next: Self) -> Self? {
        switch (self, next) {
        case (.text(let text), .text(let more)): .text(text + more)
        case (.thought(let text), .thought(let more)): .thought(text + more)
        default: nil
        }
    }
}
