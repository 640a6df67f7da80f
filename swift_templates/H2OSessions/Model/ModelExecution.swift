import Foundation

/// Runs the jobs of several actors one after the other on a thread of its own.
///
/// An array that is not computed yet can be computed only on the thread where it was asked for,
/// and waiting for the GPU should hold none of the threads that all tasks share.
package final class ThreadExecutor: SerialExecutor {
    private let jobs = JobQueue()
    /// Bytes.
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
        // Apple's systems give a thread 512 KB, and chat templates are read by recursion.
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

    /// Lets the thread end once nothing waits.
    func close() {
        condition.withLock {
            isClosed = true
            condition.signal()
        }
    }

    /// Waits for a job; nil once the queue is closed.
    func next() -> Job? {
        condition.withLock {
            while waiting.isEmpty && !isClosed { condition.wait() }
            return waiting.isEmpty ? nil : waiting.removeFirst()
        }
    }
}

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
