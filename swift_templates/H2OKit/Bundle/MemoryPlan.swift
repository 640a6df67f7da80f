import Foundation

/// The bytes that a model needs, as `h2o-pack` planned them when it made the package.
public struct MemoryPlan: Codable, Hashable, Sendable {
    /// Bytes of all weights.
    public var weights: Int
    /// Bytes of the KV caches when they are full, including scores and positions.
    public var caches: Int
    /// Bytes of one chunk of the prompt while it is computed.
    public var prefill: Int
    /// Bytes of freed buffers that MLX may keep.
    public var bufferCache: Int
    /// Bytes of the copy of the caches that a session keeps while the model thinks, so that it
    /// can remove the thoughts later; 0 for a model that does not think, or whose chat template
    /// keeps thoughts.
    public var thoughts: Int

    public init(weights: Int, caches: Int, prefill: Int, bufferCache: Int, thoughts: Int = 0) {
        self.weights = weights
        self.caches = caches
        self.prefill = prefill
        self.bufferCache = bufferCache
        self.thoughts = thoughts
    }

    /// The sum, in bytes.
    public var total: Int { weights + caches + prefill + bufferCache + thoughts }
}

extension MemoryPlan {
    /// Chooses the plan for this device. iPads and Macs have their own plan, because MLX queues
    /// more work on their GPUs than on an iPhone's, so a prompt takes more memory.
    ///
    /// - Parameter machine: the system's model identifier, such as "iPhone16,1"
    package static func onThisDevice(
        phone: MemoryPlan, tablet: MemoryPlan, machine: String = machineName()
    ) -> MemoryPlan {
        machine.hasPrefix("iPhone") ? phone : tablet
    }

    /// The model identifier of this device, or the kind of its processor on a Mac.
    package static func machineName() -> String {
        var system = utsname()
        uname(&system)
        return withUnsafeBytes(of: &system.machine) { bytes in
            String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
        }
    }
}
