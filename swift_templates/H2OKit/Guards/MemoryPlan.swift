/// The bytes that a model takes, as planned when its package was made.
public struct MemoryPlan: Codable, Hashable, Sendable {
    /// Bytes of all weights.
    public var weights: Int
    /// Bytes of the KV caches when they are full, including scores and positions.
    public var caches: Int
    /// Bytes of one chunk of the prompt while it is computed.
    public var prefill: Int
    /// Bytes of freed buffers that MLX may keep.
    public var bufferCache: Int

    public init(weights: Int, caches: Int, prefill: Int, bufferCache: Int) {
        self.weights = weights
        self.caches = caches
        self.prefill = prefill
        self.bufferCache = bufferCache
    }

    /// The sum, in bytes.
    public var total: Int { weights + caches + prefill + bufferCache }
}
