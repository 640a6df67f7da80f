@_exported import AppleFoundation

open class BGTask: NSObject {
    open var identifier: String { fatalError() }
    open var expirationHandler: (() -> Void)? {
        get { fatalError() }
        set {}
    }
    open func setTaskCompleted(success: Bool) {}
}

open class BGContinuedProcessingTask: BGTask {
    open var progress: Progress { fatalError() }
}

open class BGTaskRequest: NSObject {}

open class BGContinuedProcessingTaskRequest: BGTaskRequest {
    public struct Resources: OptionSet, Sendable {
        public let rawValue: Int
        public init(rawValue: Int) { fatalError() }
        public static var gpu: Resources { fatalError() }
    }

    public init(identifier: String, title: String, subtitle: String) {}
    open var requiredResources: Resources {
        get { fatalError() }
        set {}
    }
}

open class BGTaskScheduler: NSObject {
    open class var shared: BGTaskScheduler { fatalError() }
    open class var supportedResources: BGContinuedProcessingTaskRequest.Resources { fatalError() }
    @discardableResult
    open func register(
        forTaskWithIdentifier identifier: String, using queue: DispatchQueue?,
        launchHandler: @escaping (BGTask) -> Void
    ) -> Bool { fatalError() }
    open func submit(_ request: BGTaskRequest) throws {}
}
