import Foundation
import H2OKit

/// The memory that the system counts for this process.
package enum Footprint {
    /// Bytes now, and the largest number of bytes so far; nil if the system does not report them.
    package static var bytes: (now: Int, most: Int)? {
        #if canImport(Darwin)
            var info = task_vm_info_data_t()
            var count = mach_msg_type_number_t(
                MemoryLayout<task_vm_info_data_t>.size / MemoryLayout<natural_t>.size)
            let result = withUnsafeMutablePointer(to: &info) { pointer in
                pointer.withMemoryRebound(to: integer_t.self, capacity: Int(count)) {
                    // A copy, because Swift 6 treats mach_task_self_ of older SDKs as shared
                    // mutable state.
                    task_info(task_self_trap(), task_flavor_t(TASK_VM_INFO), $0, &count)
                }
            }
            guard result == KERN_SUCCESS else { return nil }
            return (Int(info.phys_footprint), Int(info.ledger_phys_footprint_peak))
        #else
            let text = try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)
            return text.flatMap(known)
        #endif
    }

    /// Reads VmRSS and VmHWM from the text of /proc/self/status, in bytes.
    package static func known(status: String) -> (now: Int, most: Int)? {
        guard let now = FreeMemory.bytes(of: "VmRSS", in: status),
            let most = FreeMemory.bytes(of: "VmHWM", in: status)
        else { return nil }
        return (now, most)
    }
}
