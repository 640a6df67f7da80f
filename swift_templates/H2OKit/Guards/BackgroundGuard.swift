import Foundation
import MLX

/// Keeps work off the GPU while the app is in the background, because iOS ends apps whose command
/// buffers run there.
///
/// Work is done in steps. ``system`` lets no step begin while the app is in the background; a
/// step that runs when the app goes there is waited for.
public final class BackgroundGuard: @unchecked Sendable {
    private let condition = NSCondition()
    private let finishQueuedWork: @Sendable () -> Void
    private var closed: Bool
    /// Whether closing did not wait for a step that took too long.
    private var overdue = false
    private var steps = 0
    private var waiting = [UUID: CheckedContinuation<Void, any Error>]()
    private var observers = [any NSObjectProtocol]()

    /// - Parameters:
    ///   - isClosed: whether steps wait until ``open()``
    ///   - finishQueuedWork: waits until nothing is queued on the GPU
    package init(
        isClosed: Bool = false,
        finishQueuedWork: @escaping @Sendable () -> Void = {
            StreamOrDevice.default.stream.synchronize()
        }
    ) {
        closed = isClosed
        self.finishQueuedWork = finishQueuedWork
    }

    deinit {
        for observer in observers { NotificationCenter.default.removeObserver(observer) }
    }

    /// Whether new steps have to wait.
    public var isClosed: Bool { condition.withLock { closed } }

    /// Does a step of work on the GPU, once the guard is open.
    ///
    /// - Throws: `CancellationError` if the task is canceled before, an `MLXError`, or an error
    ///   of the work
    public func withGPU<Result>(
        isolation: isolated (any Actor)? = #isolation, _ work: () throws -> Result
    ) async throws -> Result {
        try await begin()
        defer { end() }
        try Task.checkCancellation()
        return try withError(work)
    }

    /// Waits while the guard is closed, then counts a step as running.
    ///
    /// - Throws: `CancellationError` if the task is canceled while it waits
    package func begin() async throws {
        while !beginIfOpen() {
            let id = UUID()
            try await withTaskCancellationHandler {
                try await withCheckedThrowingContinuation { wait(id, $0) }
            } onCancel: {
                condition.withLock { waiting.removeValue(forKey: id) }?
                    .resume(throwing: CancellationError())
            }
        }
    }

    /// Ends a step that ``begin()`` started. If the guard was closed without waiting for it,
    /// waits until nothing is queued on the GPU.
    package func end() {
        if condition.withLock({ closed && overdue && steps == 1 }) { finishQueuedWork() }
        condition.withLock {
            steps -= 1
            condition.broadcast()
        }
    }

    /// Waits until nothing is queued on the GPU, unless the guard is closed, which has waited.
    package func drain() {
        guard beginIfOpen() else { return }
        finishQueuedWork()
        end()
    }

    /// Lets no more steps begin, and returns when the running steps have ended and nothing is
    /// queued on the GPU. A step that takes longer than that waits for the queue itself.
    ///
    /// - Parameter seconds: the longest wait; iOS ends an app that takes about five seconds to
    ///   enter the background
    /// - Returns: whether all work has ended
    @discardableResult
    package func close(within seconds: TimeInterval = 4) -> Bool {
        let deadline = Date(timeIntervalSinceNow: seconds)
        let idle = condition.withLock {
            closed = true
            while steps > 0 {
                guard condition.wait(until: deadline) else { break }
            }
            overdue = steps > 0
            return steps == 0
        }
        if idle { finishQueuedWork() }
        return idle
    }

    /// Lets steps begin again.
    package func open() {
        let continuations = condition.withLock {
            closed = false
            overdue = false
            defer { waiting = [:] }
            return Array(waiting.values)
        }
        for continuation in continuations { continuation.resume() }
    }

    /// Closes and opens with an app's notifications, on the thread that posts them, so that all
    /// work has ended when posting returns.
    package func follow(background: Notification.Name, foreground: Notification.Name) {
        let center = NotificationCenter.default
        let added = [
            center.addObserver(forName: background, object: nil, queue: nil) { [weak self] _ in
                self?.close()
            },
            center.addObserver(forName: foreground, object: nil, queue: nil) { [weak self] _ in
                self?.open()
            },
        ]
        condition.withLock { observers += added }
    }

    private func beginIfOpen() -> Bool {
        condition.withLock {
            if !closed { steps += 1 }
            return !closed
        }
    }

    private func wait(_ id: UUID, _ continuation: CheckedContinuation<Void, any Error>) {
        let now: Result<Void, any Error>? = condition.withLock {
            if Task.isCancelled { return .failure(CancellationError()) }
            if !closed { return .success(()) }
            waiting[id] = continuation
            return nil
        }
        if let now { continuation.resume(with: now) }
    }
}
