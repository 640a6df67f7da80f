import Foundation

extension MemoryPlan {
    /// The one of two plans that holds on this device: MLX queues more work on the GPU of an
    /// iPad or a Mac than on an iPhone's, so a prompt takes more memory there.
    ///
    /// - Parameter machine: the model identifier as the system gives it, such as "iPhone16,1"
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
