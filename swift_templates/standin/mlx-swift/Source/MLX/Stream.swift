// Stands in for the streams of mlx-swift 0.31.6: there is one, the CPU's.

import Cmlx

public final class Stream: @unchecked Sendable {
    fileprivate let ctx: mlx_stream

    public static let cpu = Stream(mlx_default_cpu_stream_new())

    private init(_ ctx: mlx_stream) {
        self.ctx = ctx
    }

    deinit {
        mlx_stream_free(ctx)
    }

    /// Waits until all that was queued is evaluated.
    public func synchronize() {
        mlx_synchronize(ctx)
    }
}

/// Where an operation is evaluated.
public struct StreamOrDevice: Sendable {
    public let stream: Stream

    public static var `default`: StreamOrDevice { cpu }
    public static let cpu = StreamOrDevice(stream: .cpu)

    /// The handle that the C functions take.
    public var ctx: mlx_stream { stream.ctx }
}
