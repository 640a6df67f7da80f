import Foundation
import MLX

/// Warnings that are printed to standard error, each once per process.
enum H2OWarning {
    static let simulator: Void = say(
        "this is a simulator, where MLX runs on the CPU: expect a few tokens per second, and "
            + "neither the memory nor the speed of a device.")

    /// Prints a warning when a cache continues without scores or recall, for the first such
    /// cache.
    static let listens: Void = MLXFast.h2oTell { notice in
        once(notice)
    }

    private static let lock = NSLock()
    private nonisolated(unsafe) static var codes = Set<String>()

    /// Prints a warning of the core, unless one with the same code was printed before.
    static func once(_ warning: MLXFast.H2OError) {
        lock.lock()
        defer { lock.unlock() }
        if codes.insert(warning.code).inserted { say(warning.message) }
    }

    private static func say(_ text: String) {
        FileHandle.standardError.write(Data("H2OKit: \(text)\n".utf8))
    }
}

extension H2OConfiguration {
    /// Prints warnings about settings that work but give poor text, each once per process.
    func warnOnce() {
        for warning in policy.warnings { H2OWarning.once(warning) }
    }
}
