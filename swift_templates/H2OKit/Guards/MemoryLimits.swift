import Foundation
import MLX

/// MLX's limits for a model that is in memory. They are those of the process, so each model
/// adds its plan to the others' and takes it back when this is released.
package final class MemoryLimits: Sendable {
    private static let lock = NSLock()
    private nonisolated(unsafe) static var limits = [
        ObjectIdentifier: (cache: Int, memory: Int)
    ]()
    /// Those before the first model.
    private nonisolated(unsafe) static var before = (cache: 0, memory: 0)

    /// - Parameters:
    ///   - plan: of the model
    ///   - snapshots: bytes that those of a conversation may take besides. Beyond its limit MLX
    ///     waits for each step before it queues the next
    package init(_ plan: MemoryPlan, snapshots: Int = 0) {
        Self.lock.withLock {
            if Self.limits.isEmpty { Self.before = (Memory.cacheLimit, Memory.memoryLimit) }
            Self.limits[ObjectIdentifier(self)] = (plan.bufferCache, plan.total + snapshots)
            Self.apply()
        }
    }

    deinit {
        Self.lock.withLock {
            Self.limits[ObjectIdentifier(self)] = nil
            Self.apply()
        }
    }

    private static func apply() {
        let all = limits.values
        Memory.cacheLimit = all.isEmpty ? before.cache : all.map(\.cache).reduce(0, +)
        Memory.memoryLimit = all.isEmpty ? before.memory : all.map(\.memory).reduce(0, +)
    }
}
