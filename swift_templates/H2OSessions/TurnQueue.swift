import Foundation

/// Lets the replies of one model follow each other, in the order in which they were asked for.
final class TurnQueue: @unchecked Sendable {
    private typealias Waiting = (id: UUID, continuation: CheckedContinuation<Void, any Error>)

    private let lock = NSLock()
    private var isTaken = false
    private var waiting = [Waiting]()

    /// Waits for the turn.
    ///
    /// - Throws: `CancellationError` if the task is canceled while it waits
    func begin() async throws {
        let id = UUID()
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { wait(id, $0) }
        } onCancel: {
            remove(id)?.resume(throwing: CancellationError())
        }
    }

    /// Ends the turn that ``begin()`` waited for.
    func end() {
        let next = lock.withLock {
            isTaken = !waiting.isEmpty
            return waiting.isEmpty ? nil : waiting.removeFirst()
        }
        next?.continuation.resume()
    }

    private func wait(_ id: UUID, _ continuation: CheckedContinuation<Void, any Error>) {
        let now: Result<Void, any Error>? = lock.withLock {
            if Task.isCancelled { return .failure(CancellationError()) }
            if isTaken {
                waiting.append((id, continuation))
                return nil
            }
            isTaken = true
            return .success(())
        }
        if let now { continuation.resume(with: now) }
    }

    private func remove(_ id: UUID) -> CheckedContinuation<Void, any Error>? {
        lock.withLock {
            waiting.firstIndex { $0.id == id }.map { waiting.remove(at: $0).continuation }
        }
    }
}
