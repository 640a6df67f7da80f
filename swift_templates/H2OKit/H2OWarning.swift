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
        once(notice.code, text(of: notice))
    }

    private static func text(of notice: MLXFast.H2OError) -> String {
        MLXFast.H2OArchiveFailure(notice).map { H2OCacheError.archive($0).localizedDescription }
            ?? H2OErrorText.ofCore(notice.code) { _ in "" }?.all ?? notice.code
    }

    private static let lock = NSLock()
    private nonisolated(unsafe) static var subjects = Set<String>()

    /// Prints a warning, unless one about this subject was printed before.
    static func once(_ subject: String, _ text: String) {
        lock.lock()
        defer { lock.unlock() }
        if subjects.insert(subject).inserted { say(text) }
    }

    private static func say(_ text: String) {
        FileHandle.standardError.write(Data("H2OKit: \(text)\n".utf8))
    }
}

extension H2OConfiguration {
    /// Warnings about settings that work but give poor text, with their codes.
    package var warnings: [(code: String, text: String)] {
        policy.warnings.compactMap { problem in
            H2OCacheError.ConfigurationWarning(problem).map { (problem.code, $0.text) }
        }
    }

    /// Prints ``warnings``, each once per process.
    func warnOnce() {
        for (code, text) in warnings { H2OWarning.once(code, text) }
    }
}
