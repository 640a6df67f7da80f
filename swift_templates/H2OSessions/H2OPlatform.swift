import Foundation
import H2OKit

/// The system services that a model uses; tests replace them.
package struct H2OPlatform: Sendable {
    package var memory: MemoryGuard
    package var background: BackgroundGuard
    package var metal: MetalCheck
    /// Where archives in files are.
    package var archives: ArchiveFolders
    /// Where snapshots in files are.
    package var snapshots: URL {
        archives.root.deletingLastPathComponent()
            .appending(path: "h2o-snapshots", directoryHint: .isDirectory)
    }
    /// The time since a fixed moment.
    package var elapsed: @Sendable () -> Duration

    package init(
        memory: MemoryGuard = .system, background: BackgroundGuard = .system,
        metal: MetalCheck = .system, archives: ArchiveFolders = .system,
        elapsed: @escaping @Sendable () -> Duration = H2OPlatform.sinceStart
    ) {
        self.memory = memory
        self.background = background
        self.metal = metal
        self.archives = archives
        self.elapsed = elapsed
    }

    private static let start = ContinuousClock.now

    /// The time since this was first asked.
    package static let sinceStart: @Sendable () -> Duration = {
        start.duration(to: .now)
    }
}
