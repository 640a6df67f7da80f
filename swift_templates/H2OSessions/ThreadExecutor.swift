import Foundation

/// Runs the jobs of several actors one after the other on a thread of its own.
///
/// An array that is not computed yet can be computed only on the thread where it was asked for,
/// and waiting for the GPU should hold none of the threads that all tasks share.
final class ThreadExecutor: SerialExecutor {
    private let jobs = JobQueue()

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
        thread.start()
    }

    deinit {
        jobs.close()
    }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        jobs.add { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }

    func asUnownedSerialExecutor() -> UnownedSerialExecutor {
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
