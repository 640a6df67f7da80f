import Foundation

/// Refuses to load a model that the system would end the app for.
public struct MemoryGuard: Sendable {
    private let freeBytes: @Sendable () -> Int?

    /// - Parameter freeBytes: what this process may still allocate, nil if that is unknown;
    ///   asked at every check
    public init(freeBytes: @escaping @Sendable () -> Int?) {
        self.freeBytes = freeBytes
    }

    /// Asks the system, see ``FreeMemory``.
    public static let system = MemoryGuard { FreeMemory.bytes }

    /// Bytes that this process may still allocate; nil if that is unknown.
    public var free: Int? { freeBytes() }

    /// Does nothing where the free memory is unknown.
    ///
    /// - Throws: ``MemoryShortage`` when less is free than planned
    public func check(_ plan: MemoryPlan) throws {
        guard let free, free < plan.total else { return }
        throw MemoryShortage(plan: plan, free: free)
    }
}

/// The plan does not fit into the memory that is free now. All in bytes.
public struct MemoryShortage: LocalizedError, Hashable, Sendable {
    public let plan: MemoryPlan
    public let free: Int

    public var missing: Int { plan.total - free }

    public var errorDescription: String? {
        "The model needs \(plan.total) bytes (weights \(plan.weights), caches \(plan.caches), "
            + "prefill \(plan.prefill), buffers \(plan.bufferCache)) and \(free) are free: "
            + "\(missing) bytes are missing. Close other work, check that the app has both memory "
            + "entitlements, or package a smaller model or --max-kv."
    }
}
