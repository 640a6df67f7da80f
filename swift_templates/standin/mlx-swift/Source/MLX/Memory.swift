// Stands in for the memory settings of mlx-swift 0.31.6. All are in bytes.

import Cmlx
import Foundation

public enum Memory {
    private static let known = Limits()

    /// Of arrays that are in use.
    public static var activeMemory: Int {
        var result = 0
        mlx_get_active_memory(&result)
        return result
    }

    /// The most that were in use since this was last set, whatever to.
    public static var peakMemory: Int {
        get {
            var result = 0
            mlx_get_peak_memory(&result)
            return result
        }
        set { mlx_reset_peak_memory() }
    }

    /// The most that is kept of freed buffers.
    public static var cacheLimit: Int {
        get { known.cache }
        set {
            var previous = 0
            mlx_set_cache_limit(&previous, newValue)
            known.cache = newValue
        }
    }

    /// From here on buffers are taken back before new ones are made.
    public static var memoryLimit: Int {
        get {
            var result = 0
            mlx_get_memory_limit(&result)
            return result
        }
        set {
            var previous = 0
            mlx_set_memory_limit(&previous, newValue)
        }
    }
}

private final class Limits: @unchecked Sendable {
    private let lock = NSLock()
    private var cacheLimit = 0

    var cache: Int {
        get { lock.withLock { cacheLimit } }
        set { lock.withLock { cacheLimit = newValue } }
    }
}
