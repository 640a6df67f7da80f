import Foundation
import MLX

#if os(iOS) || os(tvOS) || os(visionOS)
    import os
#endif
#if canImport(Darwin)
    @preconcurrency import Darwin  // mach_task_self_ is a variable of C
#endif
#if canImport(UIKit)
    import UIKit
#endif

/// Refuses to load a model that needs more memory than the app may use.
package struct MemoryGuard: Sendable {
    private let freeBytes: @Sendable () -> Int?

    /// - Parameter freeBytes: returns the bytes that this process may still
    ///   allocate, nil if unknown; called at every check
    package init(freeBytes: @escaping @Sendable () -> Int?) {
        self.freeBytes = freeBytes
    }

    /// Uses the free memory that the system reports: on iOS the rest of the app's limit, on macOS,
    /// where apps have no limit, all physical memory.
    package static let system = MemoryGuard { FreeMemory.bytes }

    /// Bytes that this process may still allocate; nil if unknown.
    package var free: Int? { freeBytes() }

    /// Compares a model's plan with the free memory. Does nothing if the free memory is unknown.
    ///
    /// - Parameter id: the model's id
    /// - Throws: ``H2OLoadingError/noMemory(needs:free:)`` if less is free than planned
    package func check(_ plan: MemoryPlan, of id: String) throws {
        guard let free, free < plan.total else { return }
        throw H2OLoadingError.noMemory(needs: [id: plan], free: free)
    }
}

/// Sets MLX's memory limits while a model is in memory. MLX has one set of limits per process,
/// so each model adds its plan to them, and subtracts it when this object is released.
package final class MemoryLimits: Sendable {
    private static let lock = NSLock()
    private nonisolated(unsafe) static var limits = [
        ObjectIdentifier: (cache: Int, memory: Int)
    ]()
    /// The limits before the first model.
    private nonisolated(unsafe) static var before = (cache: 0, memory: 0)

    /// Adds a model's plan to MLX's limits. If MLX exceeds its memory limit, it waits for each
    /// step before it queues the next one.
    ///
    /// - Parameters:
    ///   - plan: the model's plan
    ///   - snapshots: bytes that a conversation's snapshots may take in addition to the plan
    package init(_ plan: MemoryPlan, snapshots: Int = 0) {
        Self.lock.withLock {
            if Self.limits.isEmpty { Self.before = (Memory.cacheLimit, Memory.memoryLimit) }
            Self.limits[ObjectIdentifier(self)] = (plan.bufferCache, plan.total + snapshots)
            Self.apply()
        }
    }

    deinit {
        Self.lock.withLock {
            Self.limits[ObjectIdentifier(self)] = nil
            Self.apply()
        }
    }

    private static func apply() {
        let all = limits.values
        Memory.cacheLimit = all.isEmpty ? before.cache : all.map(\.cache).reduce(0, +)
        Memory.memoryLimit = all.isEmpty ? before.memory : all.map(\.memory).reduce(0, +)
    }
}

/// Observes memory warnings, and the app's move to the background.
package struct MemoryPressure: Sendable {
    private let names: [Notification.Name]

    /// - Parameter names: the notifications to observe
    package init(_ names: [Notification.Name] = []) {
        self.names = names
    }

    /// Observes memory warnings and the app's move to the background, where the system first ends
    /// the apps that use the most memory. On a Mac it observes nothing, because apps have no limit
    /// there.
    package static let system: MemoryPressure = {
        #if canImport(UIKit)
            MemoryPressure([
                UIApplication.didReceiveMemoryWarningNotification,
                UIApplication.didEnterBackgroundNotification,
            ])
        #else
            MemoryPressure()
        #endif
    }()

    /// Calls `react` at each notification, until the returned object is released.
    package func observe(_ react: @escaping @Sendable () -> Void) -> Observation {
        Observation(
            names.map { name in
                NotificationCenter.default.addObserver(forName: name, object: nil, queue: nil) {
                    _ in
                    react()
                }
            })
    }

    package final class Observation: @unchecked Sendable {
        private let observers: [any NSObjectProtocol]

        init(_ observers: [any NSObjectProtocol]) {
            self.observers = observers
        }

        deinit {
            for observer in observers { NotificationCenter.default.removeObserver(observer) }
        }
    }
}

/// The memory that this process takes.
package enum Footprint {
    /// The most bytes so far, nil if the system does not report them: on Apple's systems the
    /// footprint, by which iOS limits apps, and on Linux the resident set size.
    package static var largest: Int? {
        #if canImport(Darwin)
            var info = task_vm_info_data_t()
            let size = MemoryLayout<task_vm_info_data_t>.size / MemoryLayout<integer_t>.size
            var count = mach_msg_type_number_t(size)
            let status = withUnsafeMutablePointer(to: &info) {
                $0.withMemoryRebound(to: integer_t.self, capacity: size) {
                    task_info(mach_task_self_, task_flavor_t(TASK_VM_INFO), $0, &count)
                }
            }
            return status == KERN_SUCCESS ? Int(info.ledger_phys_footprint_peak) : nil
        #else
            FreeMemory.bytes(of: "VmHWM", inFile: "/proc/self/status")
        #endif
    }
}

/// The memory that this process may still allocate.
package enum FreeMemory {
    /// Bytes; nil if the system does not report them.
    ///
    /// On iOS this is the rest of the app's own limit, on Linux MemAvailable, and on macOS, where
    /// apps have no limit, all physical memory.
    package static var bytes: Int? {
        #if os(iOS) || os(tvOS) || os(visionOS)
            known(os_proc_available_memory())
        #elseif os(Linux)
            bytes(of: "MemAvailable", inFile: "/proc/meminfo")
        #else
            Int(ProcessInfo.processInfo.physicalMemory)
        #endif
    }

    /// Interprets the number that the system reports. In the simulator, and on a Mac that runs an
    /// iPad app, it is zero, which means that there is no limit.
    package static func known(_ bytes: Int) -> Int? { bytes > 0 ? bytes : nil }

    /// Reads a line such as "MemAvailable: 10 kB" from a file in /proc, in bytes.
    fileprivate static func bytes(of name: String, inFile path: String) -> Int? {
        guard let text = try? String(contentsOfFile: path, encoding: .utf8) else { return nil }
        let line = text.split(separator: "\n").first { $0.hasPrefix("\(name):") }
        let words = line?.split(whereSeparator: \.isWhitespace) ?? []
        guard words.count == 3, words[2] == "kB" else { return nil }
        return Int(words[1]).map { $0 * 1024 }
    }
}
