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

    /// Compares a model's plan with the free memory. Does nothing if the free memory is unknown.
    ///
    /// - Parameter id: the model's
    /// - Throws: ``H2OLoadingError/noMemory(needs:free:)`` if less is free than planned
    package func check(_ plan: MemoryPlan, of id: String) throws {
        guard let free, free < plan.total else { return }
        throw H2OLoadingError.noMemory(needs: [.init(id: id, plan: plan)], free: free)
    }
}
