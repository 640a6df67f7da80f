import Foundation
import H2OKit
import MLXLMCommon

#if canImport(Metal)
    import Metal
#endif

/// The device of a report, without its name, its user or its serial number.
package struct ProofMachine: Sendable {
    /// As the system gives it: "iPhone17,1".
    package var identifier: String
    /// Of the GPU; empty without one.
    package var gpu: String
    /// That the process may use.
    package var cores: Int
    /// Bytes.
    package var memory: Int
    /// iOS, iPadOS, macOS or Linux.
    package var system: String
    package var systemVersion: String

    package init(
        identifier: String, gpu: String, cores: Int, memory: Int, system: String,
        systemVersion: String
    ) {
        self.identifier = identifier
        self.gpu = gpu
        self.cores = cores
        self.memory = memory
        self.system = system
        self.systemVersion = systemVersion
    }

    /// The one that this runs on.
    package static var current: ProofMachine {
        let process = ProcessInfo.processInfo
        let version = process.operatingSystemVersion
        return ProofMachine(
            identifier: identifier, gpu: gpuName, cores: process.activeProcessorCount,
            memory: Int(process.physicalMemory), system: system(of: identifier),
            systemVersion: "\(version.majorVersion).\(version.minorVersion)")
    }

    /// The name of the system that a device with this identifier has.
    static func system(of identifier: String) -> String {
        #if os(Linux)
            "Linux"
        #else
            if identifier.hasPrefix("iPhone") {
                "iOS"
            } else if identifier.hasPrefix("iPad") {
                "iPadOS"
            } else {
                "macOS"
            }
        #endif
    }

    /// The plan's name of such a machine.
    var backend: String {
        ["iOS": "iphone", "iPadOS": "ipad", "macOS": "mac"][system] ?? "cpu"
    }

    /// What the package planned for such a machine; nil for one that it plans nothing for.
    func plan(of setting: H2OProofSetting) -> H2OProofSetting.Plan? {
        ["iphone": setting.phone, "ipad": setting.tablet][backend]
    }

    var json: JSONValue {
        .object([
            "identifier": .string(identifier), "chip": .string(""), "gpu": .string(gpu),
            "cores": .int(cores), "memory_bytes": .int(memory), "system": .string(system),
            "system_version": .string(systemVersion),
        ])
    }

    private static var identifier: String {
        #if os(macOS)
            var size = 0
            sysctlbyname("hw.model", nil, &size, nil, 0)
            var name = [UInt8](repeating: 0, count: size)
            sysctlbyname("hw.model", &name, &size, nil, 0)
            return String(decoding: name.prefix { $0 != 0 }, as: UTF8.self)
        #else
            return MemoryPlan.machineName()
        #endif
    }

    private static var gpuName: String {
        #if canImport(Metal)
            MTLCreateSystemDefaultDevice()?.name ?? ""
        #else
            ""
        #endif
    }
}
