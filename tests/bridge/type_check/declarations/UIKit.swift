@_exported import AppleFoundation

@MainActor
open class UIApplication: NSObject {
    public enum State: Int, Sendable { case active, inactive, background }

    public class var shared: UIApplication { fatalError() }
    open var applicationState: State { fatalError() }
    open var isIdleTimerDisabled: Bool {
        get { fatalError() }
        set {}
    }

    public nonisolated func beginBackgroundTask(
        withName name: String?, expirationHandler: (@MainActor @Sendable () -> Void)? = nil
    ) -> UIBackgroundTaskIdentifier { fatalError() }
    public nonisolated func endBackgroundTask(_ identifier: UIBackgroundTaskIdentifier) {}

    public nonisolated class var didEnterBackgroundNotification: NSNotification.Name {
        fatalError()
    }
    public nonisolated class var willEnterForegroundNotification: NSNotification.Name {
        fatalError()
    }
    public nonisolated class var willResignActiveNotification: NSNotification.Name { fatalError() }
    public nonisolated class var didBecomeActiveNotification: NSNotification.Name { fatalError() }
    public nonisolated class var didReceiveMemoryWarningNotification: NSNotification.Name {
        fatalError()
    }
}

public struct UIBackgroundTaskIdentifier: Hashable, Sendable {}

@MainActor
open class UIPasteboard: NSObject {
    public class var general: UIPasteboard { fatalError() }
    open var string: String? {
        get { fatalError() }
        set {}
    }
}
