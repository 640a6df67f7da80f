import Foundation
import MLX

/// MLX's limits for a model that is in memory. They are those of the process, so each model
/// adds its plan to the others' and takes it back when this is released.
package final class MemoryLimits: Sendable {
    private static let lock = NSLock()
    private nonisolated(unsafe) static var plans = [ObjectIdentifier: MemoryPlan]()
    /// Those before the first model.
    private nonisolated(unsafe) static var before = (cache: 0, memory: 0)

    package init(_ plan: MemoryPlan) {
        Self.lock.withLock {
            if Self.plans.isEmpty { Self.before = (Memory.cacheLimit, Memory.memoryLimit) }
            Self.plans[ObjectIdentifier(self)] = plan
            Self.apply()
        }
    }

    deinit {
        Self.lock.withLock {
            Self.plans[ObjectIdentifier(self)] = nil
            Self.apply()
        }
    }

    private static func apply() {
        let all = plans.values
        let (cache, total) = (all.map(\.bufferCache).reduce(0, +), all.map(\.total).reduce(0, +))
        Memory.cacheLimit = all.isEmpty ? before.cache : cache
        Memory.memoryLimit = all.isEmpty ? before.memory : total
    }
}
