import Dispatch

/// Runs the jobs of several actors one after the other on a queue of its own, so that waiting
/// for the GPU holds none of the threads that all tasks share.
final class QueueExecutor: SerialExecutor {
    private let queue = DispatchQueue(label: "h2o-model", qos: .userInitiated)

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }

    func asUnownedSerialExecutor() -> UnownedSerialExecutor {
        UnownedSerialExecutor(ordinary: self)
    }
}
