import Foundation

/// The system services that a session uses; tests replace them.
public struct H2OPlatform: Sendable {
    public var memory: MemoryGuard
    public var background: BackgroundGuard
    public var metal: MetalCheck
    /// Where archives in files are.
    public var archives: ArchiveFolders
    /// Seconds since a fixed moment.
    public var seconds: @Sendable () -> Double

    public init(
        memory: MemoryGuard = .system, background: BackgroundGuard = .system,
        metal: MetalCheck = .system, archives: ArchiveFolders = .system,
        seconds: @escaping @Sendable () -> Double = { ProcessInfo.processInfo.systemUptime }
    ) {
        self.memory = memory
        self.background = background
        self.metal = metal
        self.archives = archives
        self.seconds = seconds
    }
}
