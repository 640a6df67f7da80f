import Foundation

#if os(iOS) || os(tvOS) || os(visionOS)
    import os
#endif

/// The memory that this process may still allocate.
package enum FreeMemory {
    /// Bytes, nil if the system does not say.
    ///
    /// iOS: the rest of the app's own limit. Linux: MemAvailable. macOS, where apps have no
    /// limit: all physical memory.
    package static var bytes: Int? {
        #if os(iOS) || os(tvOS) || os(visionOS)
            os_proc_available_memory()
        #elseif os(Linux)
            (try? String(contentsOfFile: "/proc/meminfo", encoding: .utf8)).flatMap(available)
        #else
            Int(ProcessInfo.processInfo.physicalMemory)
        #endif
    }

    /// MemAvailable of a text like /proc/meminfo, in bytes.
    static func available(meminfo: String) -> Int? {
        for line in meminfo.split(separator: "\n") where line.hasPrefix("MemAvailable:") {
            let words = line.split(separator: " ")
            guard words.count == 3, words[2] == "kB", let kilobytes = Int(words[1]) else {
                return nil
            }
            return kilobytes * 1024
        }
        return nil
    }
}
