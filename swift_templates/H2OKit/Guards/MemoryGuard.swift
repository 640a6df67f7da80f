import Foundation

/// Refuses to load a model that takes so much memory that the system would end the app.
package struct MemoryGuard: Sendable {
    private let freeBytes: @Sendable () -> Int?

    /// - Parameter freeBytes: bytes that this process may still allocate, nil if unknown; called
    ///   at every check
    package init(freeBytes: @escaping @Sendable () -> Int?) {
        self.freeBytes = freeBytes
    }

    /// Uses the system's answer: on iOS the rest of the app's own limit; on macOS, where apps
    /// have no limit, all physical memory.
    package static let system = MemoryGuard { FreeMemory.bytes }

    /// Bytes that this process may still allocate; nil if unknown.
    package var free: Int? { freeBytes() }

    /// Compares the plan with the free memory. Does nothing if the free memory is unknown.
    ///
    /// - Throws: ``MemoryShortage`` if less is free than planned
    package func check(_ plan: MemoryPlan) throws {
        guard let free, free < plan.total else { return }
        throw MemoryShortage(plan: plan, free: free)
    }
}

/// The plan does not fit into the free memory. All values are in bytes.
public struct MemoryShortage: LocalizedError, Hashable, Sendable {
    public let plan: MemoryPlan
    public let free: Int

    public var missing: Int { plan.total - free }

    public var errorDescription: String? {
        "The model needs \(plan.total) bytes (weights \(plan.weights), caches \(plan.caches), "
            + "prefill \(plan.prefill), buffers \(plan.bufferCache)) and \(free) are free: "
            + "\(missing) bytes are missing. Release other memory, check that the app has both "
            + "memory entitlements, or package a smaller model or a smaller --max-kv."
    }
}
