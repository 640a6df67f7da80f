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
            known(os_proc_available_memory())
        #elseif os(Linux)
            (try? String(contentsOfFile: "/proc/meminfo", encoding: .utf8)).flatMap(available)
        #else
            Int(ProcessInfo.processInfo.physicalMemory)
        #endif
    }

    /// What an answer of the system says of an app's limit. Zero is no answer: that of the
    /// simulator, and of a Mac that runs an app for iPad, neither of which has a limit.
    package static func known(_ bytes: Int) -> Int? { bytes > 0 ? bytes : nil }

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
