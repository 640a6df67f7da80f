import Foundation

/// What a session asks of the system that it runs on.
public struct H2OPlatform: Sendable {
    public var memory: MemoryGuard
    public var background: BackgroundGuard
    public var metal: MetalCheck
    /// Seconds since some moment, the same for all calls.
    public var seconds: @Sendable () -> Double

    public init(
        memory: MemoryGuard = .system, background: BackgroundGuard = .system,
        metal: MetalCheck = .system,
        seconds: @escaping @Sendable () -> Double = { ProcessInfo.processInfo.systemUptime }
    ) {
        self.memory = memory
        self.background = background
        self.metal = metal
        self.seconds = seconds
    }
}
