import Foundation

/// What the device says about heat and power.
package struct DeviceConditions: Sendable {
    /// Whether the device is so hot that it must cool down.
    package let isTooHot: @Sendable () -> Bool
    /// Whether the user has turned on Low Power Mode.
    package let isLowPower: @Sendable () -> Bool

    package init(
        isTooHot: @escaping @Sendable () -> Bool = { false },
        isLowPower: @escaping @Sendable () -> Bool = { false }
    ) {
        (self.isTooHot, self.isLowPower) = (isTooHot, isLowPower)
    }

    /// What the system reports. Apple asks apps to stop all work that can wait in the thermal state
    /// `critical`.
    package static let system: DeviceConditions = {
        #if canImport(Darwin)
            DeviceConditions(
                isTooHot: { ProcessInfo.processInfo.thermalState == .critical },
                isLowPower: { ProcessInfo.processInfo.isLowPowerModeEnabled })
        #else
            DeviceConditions()
        #endif
    }()
}
