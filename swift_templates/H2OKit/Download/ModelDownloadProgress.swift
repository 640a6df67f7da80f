/// How far a model's download is.
public struct ModelDownloadProgress: Hashable, Sendable {
    /// Bytes that are here, those of earlier launches too.
    public var received: Int
    /// Bytes of the model.
    public let total: Int
    /// Of the last seconds; nil before there are any.
    public var bytesPerSecond: Double?

    package init(received: Int, total: Int) {
        (self.received, self.total) = (received, total)
    }

    /// The time until all is here, at this rate.
    public var remaining: Duration? {
        guard let bytesPerSecond, bytesPerSecond > 0 else { return nil }
        return .seconds(Double(total - received) / bytesPerSecond)
    }
}

/// The rate at which bytes arrive, over the last seconds.
package struct TransferRate {
    private static let window = Duration.seconds(5)
    private var samples = [(time: ContinuousClock.Instant, bytes: Int)]()

    package init() {}

    /// - Returns: bytes per second; nil at the first call
    package mutating func add(total bytes: Int, at time: ContinuousClock.Instant) -> Double? {
        // The newest of those before the window stays, so that the rate spans it.
        while samples.count > 1, samples[1].time.duration(to: time) >= Self.window {
            samples.removeFirst()
        }
        samples.append((time, bytes))
        let elapsed = samples[0].time.duration(to: time)
        guard elapsed > .zero else { return nil }
        return Double(bytes - samples[0].bytes) / (elapsed / .seconds(1))
    }
}
