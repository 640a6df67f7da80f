// A stand-in for the devices, streams, memory limits and errors of mlx-swift 0.31.6. With any
// default device, the CPU computes, on one stream.

import Cmlx
import Foundation

/// The kinds of devices.
public enum DeviceType: String, Hashable, Sendable {
    case cpu, gpu
}

/// The device on which operations without a stream are evaluated.
public struct Device: Equatable, Sendable {
    @TaskLocal private static var current = Device.cpu

    public static let cpu = Device(deviceType: .cpu)
    public static let gpu = Device(deviceType: .gpu)

    public let deviceType: DeviceType?

    public static func defaultDevice() -> Device { current }

    /// Runs `body` with a default device, also for code that `body` waits for.
    public static func withDefaultDevice<R>(
        _ device: Device, _ body: () async throws -> R
    ) async rethrows -> R {
        try await $current.withValue(device, operation: body)
    }
}

public final class Stream: @unchecked Sendable {
    fileprivate let ctx: mlx_stream

    public static let cpu = Stream(mlx_default_cpu_stream_new())

    private init(_ ctx: mlx_stream) {
        self.ctx = ctx
    }

    deinit {
        mlx_stream_free(ctx)
    }

    /// Waits until all queued work is evaluated.
    public func synchronize() {
        mlx_synchronize(ctx)
    }
}

/// The stream or device on which an operation is evaluated.
public struct StreamOrDevice: Sendable {
    public let stream: Stream

    public static var `default`: StreamOrDevice { cpu }
    public static let cpu = StreamOrDevice(stream: .cpu)

    /// The handle that the C functions take.
    public var ctx: mlx_stream { stream.ctx }
}

public enum Memory {
    private static let known = Limits()

    /// Bytes of arrays in use.
    public static var activeMemory: Int {
        var result = 0
        mlx_get_active_memory(&result)
        return result
    }

    /// The largest number of bytes in use since this property was last set, to any value.
    public static var peakMemory: Int {
        get {
            var result = 0
            mlx_get_peak_memory(&result)
            return result
        }
        set { mlx_reset_peak_memory() }
    }

    /// The largest number of bytes of freed buffers that are kept.
    public static var cacheLimit: Int {
        get { known.cache }
        set {
            var previous = 0
            mlx_set_cache_limit(&previous, newValue)
            known.cache = newValue
        }
    }

    /// Releases the freed buffers that are kept for reuse.
    public static func clearCache() { mlx_clear_cache() }

    /// Above this number of bytes in use, kept buffers are released before new ones are allocated.
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

public enum MLXError: LocalizedError, Sendable, Equatable {
    case caught(String)

    public var errorDescription: String? {
        switch self {
        case .caught(let message): "MLX Error: \(message)"
        }
    }
}

/// Throws the first error that MLX reports while `body` runs.
public func withError<R>(_ body: () throws -> R) throws -> R {
    installErrorHandler()
    let box = FirstError()
    let result = try FirstError.$current.withValue(box, operation: body)
    if let message = box.message {
        throw MLXError.caught(message)
    }
    return result
}

/// Sets the handler that receives MLX's errors, once.
func installErrorHandler() {
    _ = errorHandlerInstalled
}

private let errorHandlerInstalled: Void = mlx_set_error_handler(
    { message, _ in
        FirstError.report(message.map { String(cString: $0) } ?? "MLX failed without a message")
    }, nil, nil)

private final class FirstError: @unchecked Sendable {
    @TaskLocal static var current: FirstError?

    private let lock = NSLock()
    private var first: String?

    var message: String? { lock.withLock { first } }

    static func report(_ message: String) {
        guard let current else { fatalError(message) }
        current.lock.withLock { current.first = current.first ?? message }
    }
}
