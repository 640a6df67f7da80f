import Foundation

/// What is printed on standard error, once per process.
enum H2OWarning {
    static let scoresDoNotArrive: Void = say(
        "the model calls a cache's update(keys:values:) and attends itself, so no scores arrive: "
            + "novelty and recency alone decide what is evicted. Models that call "
            + "attentionWithCacheUpdate are routed.")

    static let simulator: Void = say(
        "this is a simulator, where MLX runs on the CPU: expect a few tokens per second, and "
            + "neither the memory nor the speed of a device.")

    static let archiveLimit: Void = say(
        "the archive of a layer has reached its limit: the oldest tokens cannot be recalled any "
            + "more. Raise the limit of recall.")

    /// Why recall is off, once per reason.
    static func recallEnds(_ reason: String) {
        once(reason, "nothing is recalled from here on: \(reason)")
    }

    /// The first warning of a kind about a configuration; later ones are not printed.
    static func configuration(_ kind: String, _ text: String) { once(kind, text) }

    private static let lock = NSLock()
    private nonisolated(unsafe) static var told = Set<String>()

    private static func once(_ subject: String, _ text: String) {
        lock.lock()
        defer { lock.unlock() }
        if told.insert(subject).inserted { say(text) }
    }

    private static func say(_ text: String) {
        FileHandle.standardError.write(Data("H2OKit: \(text)\n".utf8))
    }
}

extension H2OConfiguration {
    /// What works but is known to serve text badly, by its code.
    package var warnings: [(code: String, text: String)] {
        policy.warnings.compactMap { problem in
            H2OCacheError.ConfigurationWarning(problem).map { (problem.code, $0.text) }
        }
    }

    /// Prints what works but is known to serve text badly, once per process.
    func warnOnce() {
        for (code, text) in warnings { H2OWarning.configuration(code, text) }
    }
}
