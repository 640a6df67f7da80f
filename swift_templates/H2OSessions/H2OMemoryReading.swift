import Foundation
import H2OKit
import MLX
import MLXLMCommon

/// Memory at a moment, in bytes.
public struct H2OMemoryReading: Hashable, Sendable {
    /// Bytes of MLX's arrays.
    public let active: Int
    /// Bytes that the process may still allocate; nil if the system does not report it.
    public let free: Int?
    /// Bytes that the model was planned to take; nil for a model without a plan.
    public let planned: Int?
    /// Tokens that the conversation's caches have read.
    public let tokens: Int
    /// Tokens that the caches remember: those with a row, or all of them with recall.
    public let remembered: Int
}

extension H2OMemoryReading {
    /// - Parameter caches: the conversation's caches
    init(_ model: LoadedModel, _ caches: [any KVCache]) {
        active = model.script == nil ? Memory.activeMemory : 0
        free = model.platform.memory.free
        planned = model.plan?.total
        let evicting = caches.evicting
        tokens = evicting.map(\.offset).max() ?? 0
        remembered =
            evicting.map {
                let rows = $0.configuration.maxSize
                return $0.recalled == nil ? min($0.offset, rows) : $0.offset
            }.max() ?? 0
    }
}

extension Conversation {
    /// The memory in use now.
    package var memory: H2OMemoryReading { H2OMemoryReading(loaded, caches) }
}

extension H2OSession {
    /// The memory in use now, and how many tokens are remembered.
    public var memory: H2OMemoryReading {
        get async { await conversation.memory }
    }
}
