import Foundation

/// What the device says about heat and power.
package struct DeviceConditions: Sendable {
    /// How hot the device is, as `ProcessInfo.ThermalState` says it.
    package enum ThermalState: String, Sendable { case nominal, fair, serious, critical }

    /// How hot the device is; nil if the system does not report it.
    package let thermalState: @Sendable () -> ThermalState?
    /// Whether the user has turned on Low Power Mode.
    package let isLowPower: @Sendable () -> Bool

    package init(
        thermalState: @escaping @Sendable () -> ThermalState? = { nil },
        isLowPower: @escaping @Sendable () -> Bool = { false }
    ) {
        (self.thermalState, self.isLowPower) = (thermalState, isLowPower)
    }

    /// Whether the device is so hot that it must cool down. In the state `critical`, Apple asks
    /// apps to stop all work that can wait.
    package var isTooHot: Bool { thermalState() == .critical }

    /// What the system reports.
    package static let system: DeviceConditions = {
        #if canImport(Darwin)
            DeviceConditions(
                thermalState: {
                    switch ProcessInfo.processInfo.thermalState {
                    case .nominal: .nominal
                    case .fair: .fair
                    case .serious: .serious
                    case .critical: .critical
                    @unknown default: nil
                    }
                }, isLowPower: { ProcessInfo.processInfo.isLowPowerModeEnabled })
        #else
            DeviceConditions()
        #endif
    }()
}
