import Foundation
import H2OKit

#if canImport(Metal)
    import Metal
#endif

/// The measurements of one device, in the form that `h2o-pack prove --import` reads.
package struct ProofReport: Encodable, Sendable {
    let format = 1
    let tool = "app"
    let date: String
    let machine: Machine
    let versions: [String: String]
    let model: String
    let maxKv: Int
    let kv: String
    let levels: [Level]
    let memory: [Memory]
    let speed: [Speed]
    /// The thermal state, from 0 (nominal) to 3 (critical); nil if the system does not report it.
    let thermalState: Int?

    /// The JSON document.
    ///
    /// - Throws: an error of `JSONEncoder`
    func data() throws -> Data {
        let encoder = JSONEncoder()
        encoder.keyEncodingStrategy = .convertToSnakeCase
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        return try encoder.encode(self)
    }

    /// The result of level 2 of parity, the only level that runs on a device.
    struct Level: Encodable, Sendable {
        private let number = 2
        private let verdict: String
        private let cases: Int
        private let largestOutputDifference: Float
        /// The first difference, or why the level did not run.
        private let detail: String
        /// The most characters of a text in a report.
        private static let longestDetail = 400

        init(_ results: [ParityResult]) {
            let first = results.lazy.compactMap(\.firstDifference).first
            verdict = first == nil ? "equal" : "differs"
            cases = results.count
            largestOutputDifference = results.map(\.largestOutputDifference).max() ?? 0
            let text = first.map { "step \($0.step), \($0.kind.rawValue): \($0.detail)" } ?? ""
            detail = String(text.prefix(Self.longestDetail))
        }

        init(notRun reason: String) {
            (verdict, cases, largestOutputDifference) = ("not run", 0, 0)
            detail = String(reason.prefix(Self.longestDetail))
        }
    }

    struct Memory: Encodable, Sendable {
        let name: String
        let bytes: Int
        var planned: Int?
    }

    struct Speed: Encodable, Sendable {
        let name: String
        let tokensPerSecond: Double
    }

    /// The device, without its name, its user or its serial number.
    package struct Machine: Encodable, Sendable {
        /// The identifier that the system reports, such as "iPhone17,1".
        let identifier: String
        /// The name of the GPU; empty without one.
        let gpu: String
        /// Cores that the process may use.
        let cores: Int
        let memoryBytes: Int
        /// iOS, iPadOS, macOS or Linux.
        let system: String
        let systemVersion: String

        /// The machine on which this runs.
        static var current: Machine {
            let process = ProcessInfo.processInfo
            let version = process.operatingSystemVersion
            return Machine(
                identifier: currentIdentifier, gpu: gpuName, cores: process.activeProcessorCount,
                memoryBytes: Int(process.physicalMemory), system: systemName,
                systemVersion: "\(version.majorVersion).\(version.minorVersion)")
        }

        private static var systemName: String {
            #if os(Linux)
                "Linux"
            #elseif os(macOS)
                "macOS"
            #else
                currentIdentifier.hasPrefix("iPad") ? "iPadOS" : "iOS"
            #endif
        }

        private static var currentIdentifier: String {
            #if os(macOS)
                var size = 0
                sysctlbyname("hw.model", nil, &size, nil, 0)
                var name = [UInt8](repeating: 0, count: size)
                sysctlbyname("hw.model", &name, &size, nil, 0)
                return String(decoding: name.prefix { $0 != 0 }, as: UTF8.self)
            #else
                MemoryPlan.machineName()
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
}
