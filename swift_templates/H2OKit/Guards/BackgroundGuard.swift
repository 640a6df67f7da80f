import Foundation
import MLX

#if canImport(UIKit)
    import UIKit
#endif

/// Keeps work off the GPU while the app is in the background, because iOS ends apps whose command
/// buffers run there.
///
/// Work is divided into steps. ``system`` lets no step begin while the app is in the
/// background, and entering the background waits for the running step. Long steps, such as a
/// chunk of a prompt, do not begin once the app is about to leave the foreground.
///
/// Call ``allowInBackground()`` if the system lets the app use the GPU in the background, for
/// example during a `BGContinuedProcessingTask` with the `.gpu` resource.
public final class BackgroundGuard: @unchecked Sendable {
    private let condition = NSCondition()
    /// Returns a function that waits for the stream in which the calling thread queues work.
    private let waitForStream: @Sendable () -> @Sendable () -> Void
    /// By thread, a function that waits for the stream in which that thread's steps queued
    /// work. Each thread may have its own default stream. The threads are kept, because a later
    /// thread could otherwise get the identifier of one that has ended.
    private var streams = [ObjectIdentifier: (thread: Thread, wait: @Sendable () -> Void)]()
    /// Whether the app is about to leave the foreground, or has not fully entered it.
    private var isInactive = false
    private var isInBackground: Bool
    private var allowances = 0
    private var refuses = false
    /// Whether the guard closed before a step ended, because the step took too long.
    private var overdue = false
    private var steps = 0
    private var waiting = [UUID: CheckedContinuation<Void, any Error>]()
    private var observers = [any NSObjectProtocol]()

    /// - Parameters:
    ///   - isClosed: whether steps wait until ``open()``
    ///   - waitForStream: returns a function that waits for the stream in which the calling
    ///     thread queues work
    package init(
        isClosed: Bool = false,
        waitForStream: @escaping @Sendable () -> @Sendable () -> Void = BackgroundGuard.stream
    ) {
        self.waitForStream = waitForStream
        isInBackground = isClosed
    }

    deinit {
        for observer in observers { NotificationCenter.default.removeObserver(observer) }
    }

    /// Whether new steps must wait.
    public var isClosed: Bool { condition.withLock { closed } }

    /// Use this with the lock held.
    private var closed: Bool { isInBackground && allowances == 0 }

    /// Whether a step throws an error if the guard is closed, instead of waiting for the
    /// foreground. An App Intent that runs in the background would wait until the system ends it.
    public var refusesInBackground: Bool {
        get { condition.withLock { refuses } }
        set { condition.withLock { refuses = newValue } }
    }

    /// Lets steps run in the background until the returned function is called or released. Use
    /// this during a `BGContinuedProcessingTask` that has the GPU, or an App Intent that needs it.
    ///
    /// - Returns: a function that closes the guard if the app is in the background, and waits until
    ///   the running step has ended. Call it in the task's expiration handler.
    public func allowInBackground() -> @Sendable () -> Void {
        let allowance = Allowance(self)
        condition.withLock { allowances += 1 }
        resume()
        return { allowance.end() }
    }

    /// Permits the app to use the GPU in the background, as long as this object exists.
    private final class Allowance: Sendable {
        private let background: BackgroundGuard
        private let hasEnded = NSLock()

        init(_ background: BackgroundGuard) {
            self.background = background
        }

        deinit { end() }

        func end() {
            // The lock is never released, so the permission ends only once.
            if hasEnded.try() { background.endAllowance() }
        }
    }

    private func endAllowance() {
        let closes = condition.withLock {
            allowances -= 1
            return closed
        }
        if closes { close() }
    }

    /// Runs a step of work on the GPU, after waiting until the guard is open.
    ///
    /// - Parameter isLong: whether the step is too long to begin when the app is about to leave the
    ///   foreground
    /// - Throws: `CancellationError` if the task is canceled before the step begins,
    ///   ``InBackgroundError`` if the guard ``refusesInBackground``, an `MLXError`, or an error of
    ///   the work
    public func withGPU<Result>(
        isLong: Bool = false, isolation: isolated (any Actor)? = #isolation,
        _ work: () throws -> Result
    ) async throws -> Result {
        if !beginIfOpen(isLong) { try await begin(isLong: isLong) }
        defer { end() }
        try Task.checkCancellation()
        noteStream()
        return try withError(work)
    }

    /// Waits while the guard is closed, then counts a step as running.
    ///
    /// - Throws: `CancellationError` if the task is canceled while it waits, or
    ///   ``InBackgroundError``
    package func begin(isLong: Bool = false) async throws {
        while !beginIfOpen(isLong) {
            if condition.withLock({ closed && refuses }) { throw InBackgroundError() }
            let id = UUID()
            try await withTaskCancellationHandler {
                try await withCheckedThrowingContinuation { wait(id, isLong, $0) }
            } onCancel: {
                condition.withLock { waiting.removeValue(forKey: id) }?
                    .resume(throwing: CancellationError())
            }
        }
    }

    /// Ends a step that ``begin()`` started. If the guard was closed without waiting for it,
    /// waits until nothing is queued on the GPU.
    package func end() {
        if condition.withLock({ closed && overdue && steps == 1 }) { finish() }
        condition.withLock {
            steps -= 1
            condition.broadcast()
        }
    }

    /// Waits until nothing is queued on the GPU, unless the guard is closed and has waited for
    /// it.
    package func drain() {
        guard beginIfOpen(false) else { return }
        finish()
        end()
    }

    /// Closes the guard: no more steps begin. Returns when the running steps have ended and
    /// nothing is queued on the GPU, or after `seconds`. A step that runs longer waits itself,
    /// at its end, until nothing is queued on the GPU.
    ///
    /// - Parameter seconds: the longest wait; iOS ends an app that takes about five seconds to
    ///   enter the background
    /// - Returns: true if all work has ended, or may continue in the background
    @discardableResult
    package func close(within seconds: TimeInterval = 4) -> Bool {
        let deadline = Date(timeIntervalSinceNow: seconds)
        let idle: Bool? = condition.withLock {
            isInBackground = true
            guard closed else { return nil }
            while steps > 0, condition.wait(until: deadline) {}
            overdue = steps > 0
            return !overdue
        }
        guard let idle else { return true }
        if idle { finish() }
        return idle
    }

    /// Lets steps begin again.
    package func open() {
        condition.withLock { isInBackground = false }
        resume()
    }

    /// Keeps long steps from beginning until ``activate()``, except with
    /// ``allowInBackground()``.
    package func deactivate() { condition.withLock { isInactive = true } }

    /// Lets long steps begin: the app is fully in the foreground.
    package func activate() {
        condition.withLock { isInactive = false }
        open()
    }

    /// Lets the waiting steps check again whether they may begin.
    private func resume() {
        let continuations = condition.withLock {
            overdue = false
            defer { waiting = [:] }
            return Array(waiting.values)
        }
        for continuation in continuations { continuation.resume() }
    }

    /// The notifications of UIKit that the guard follows.
    package struct Notifications: Sendable {
        let background, foreground, inactive, active: Notification.Name
    }

    /// Closes and opens the guard on an app's notifications. This runs on the thread that posts
    /// them, so that all work has ended when posting returns.
    package func follow(_ names: Notifications) {
        let reactions: [(Notification.Name, @Sendable (BackgroundGuard) -> Void)] = [
            (names.background, { $0.close() }), (names.foreground, { $0.open() }),
            (names.inactive, { $0.deactivate() }), (names.active, { $0.activate() }),
        ]
        let added = reactions.map { name, react in
            NotificationCenter.default.addObserver(forName: name, object: nil, queue: nil) {
                [weak self] _ in
                if let self { react(self) }
            }
        }
        condition.withLock { observers += added }
    }

    private func beginIfOpen(_ isLong: Bool) -> Bool {
        condition.withLock {
            let isOpen = isOpen(isLong)
            if isOpen { steps += 1 }
            return isOpen
        }
    }

    /// Call this with the lock held.
    private func isOpen(_ isLong: Bool) -> Bool {
        !closed && !(isLong && isInactive && allowances == 0)
    }

    /// Records the stream of this thread, because the thread that closes the guard has another
    /// one.
    private func noteStream() {
        let (thread, id) = (Thread.current, ObjectIdentifier(Thread.current))
        let isKnown = condition.withLock { streams[id] != nil }
        guard !isKnown else { return }
        let wait = waitForStream()
        condition.withLock { streams[id] = (thread, wait) }
    }

    /// Returns a function that waits for MLX's default stream of this thread.
    package static let stream: @Sendable () -> @Sendable () -> Void = {
        let stream = StreamOrDevice.default.stream
        return { stream.synchronize() }
    }

    /// Waits until nothing is queued on the GPU.
    private func finish() {
        for stream in condition.withLock({ Array(streams.values) }) { stream.wait() }
    }

    private func wait(
        _ id: UUID, _ isLong: Bool, _ continuation: CheckedContinuation<Void, any Error>
    ) {
        let now: Result<Void, any Error>? = condition.withLock {
            if Task.isCancelled { return .failure(CancellationError()) }
            if isOpen(isLong) { return .success(()) }
            waiting[id] = continuation
            return nil
        }
        if let now { continuation.resume(with: now) }
    }
}

extension BackgroundGuard {
    /// The guard of this process. With UIKit it follows the app's notifications, and is closed
    /// until the app is known to be in the foreground, because the system also starts apps in
    /// the background. On other systems the GPU may work in the background, so the guard stays
    /// open.
    public static let system: BackgroundGuard = {
        #if canImport(UIKit)
            let system = BackgroundGuard(isClosed: true)
            system.follow(
                Notifications(
                    background: UIApplication.didEnterBackgroundNotification,
                    foreground: UIApplication.willEnterForegroundNotification,
                    inactive: UIApplication.willResignActiveNotification,
                    active: UIApplication.didBecomeActiveNotification))
            Task { @MainActor in
                if UIApplication.shared.applicationState != .background { system.open() }
            }
            return system
        #else
            return BackgroundGuard()
        #endif
    }()

    /// Runs work that the system should let finish if the app goes to the background, such as
    /// writing a file. The work must not use the GPU.
    package static func finishing<Result>(
        isolation: isolated (any Actor)? = #isolation, _ work: () throws -> Result
    ) async rethrows -> Result {
        #if canImport(UIKit)
            let task = await UIApplication.shared.beginBackgroundTask(withName: "h2o-save")
            defer { Task { @MainActor in UIApplication.shared.endBackgroundTask(task) } }
        #endif
        return try work()
    }
}

/// The app is in the background, where it may not use the GPU, and
/// ``BackgroundGuard/refusesInBackground`` is set.
public struct InBackgroundError: LocalizedError {
    package init() {}

    public var errorDescription: String? { "The app can answer only while it is open." }

    public var recoverySuggestion: String? {
        "Open the app. Or request the GPU for the background from the system, and then call "
            + "BackgroundGuard.system.allowInBackground()."
    }
}
