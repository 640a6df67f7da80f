import MLX

/// The bytes that a model takes, as planned when its package was made.
public struct MemoryPlan: Codable, Hashable, Sendable {
    /// Of all weights.
    public var weights: Int
    /// Of the KV caches when they are full, with scores and positions.
    public var caches: Int
    /// Of a chunk of the prompt while it is computed.
    public var prefill: Int
    /// What MLX may keep of buffers that were freed.
    public var bufferCache: Int

    public init(weights: Int, caches: Int, prefill: Int, bufferCache: Int) {
        self.weights = weights
        self.caches = caches
        self.prefill = prefill
        self.bufferCache = bufferCache
    }

    /// All of it, in bytes.
    public var total: Int { weights + caches + prefill + bufferCache }

    /// Sets MLX's limits: uncapped, its buffer cache grows with every turn.
    public func apply() {
        Memory.cacheLimit = bufferCache
        Memory.memoryLimit = total
    }
}
