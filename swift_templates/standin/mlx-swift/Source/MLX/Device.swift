// Stands in for the devices of mlx-swift 0.31.6: whichever is the default one, the CPU computes.

/// The kinds of devices.
public enum DeviceType: String, Hashable, Sendable {
    case cpu, gpu
}

/// What operations are evaluated on where no stream is named.
public struct Device: Equatable, Sendable {
    @TaskLocal private static var current = Device.cpu

    public static let cpu = Device(deviceType: .cpu)
    public static let gpu = Device(deviceType: .gpu)

    public let deviceType: DeviceType?

    public static func defaultDevice() -> Device { current }

    /// The default device of a task and what it waits for.
    public static func withDefaultDevice<R>(
        _ device: Device, _ body: () async throws -> R
    ) async rethrows -> R {
        try await $current.withValue(device, operation: body)
    }
}
