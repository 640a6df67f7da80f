import Foundation

/// Runs the jobs of several actors one after the other on its own thread.
///
/// MLX can compute an array only on the thread that asked for it, and waiting for the GPU should
/// not block the threads that all tasks share.
package final class ThreadExecutor: SerialExecutor {
    private let jobs = JobQueue()
    /// The stack's size in bytes.
    package static let stackSize = 4 << 20

    init() {
        let jobs = jobs
        let thread = Thread {
            while let run = jobs.next() {
                #if canImport(ObjectiveC)
                    autoreleasepool(invoking: run)
                #else
                    run()
                #endif
            }
        }
        thread.name = "h2o-model"
        thread.qualityOfService = .userInitiated
        // Apple's default of 512 KB is too small, because chat templates are parsed recursively.
        thread.stackSize = Self.stackSize
        thread.start()
    }

    deinit {
        jobs.close()
    }

    package func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        jobs.add { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }

    package func asUnownedSerialExecutor() -> UnownedSerialExecutor {
        UnownedSerialExecutor(ordinary: self)
    }
}

/// Jobs that wait for their thread, in order.
private final class JobQueue: @unchecked Sendable {
    typealias Job = @Sendable () -> Void

    private let condition = NSCondition()
    private var waiting = [Job]()
    private var isClosed = false

    func add(_ job: @escaping Job) {
        condition.withLock {
            waiting.append(job)
            condition.signal()
        }
    }

    /// Closes the queue. Its thread ends when no job waits any more.
    func close() {
        condition.withLock {
            isClosed = true
            condition.signal()
        }
    }

    /// Waits for a job and returns it; nil when the queue is closed.
    func next() -> Job? {
        condition.withLock {
            while waiting.isEmpty && !isClosed { condition.wait() }
            return waiting.isEmpty ? nil : waiting.removeFirst()
        }
    }
}

/// Runs the replies of one model one after the other, in the order of their requests.
final class TurnQueue: @unchecked Sendable {
    private typealias Waiting = (id: UUID, continuation: CheckedContinuation<Void, any Error>)

    private let lock = NSLock()
    private var isTaken = false
    private var waiting = [Waiting]()

    /// Waits until all earlier turns have ended.
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
