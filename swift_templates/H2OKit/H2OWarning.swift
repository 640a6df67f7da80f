import Foundation

/// What is printed on standard error, once per process.
enum H2OWarning {
    static let scoresDoNotArrive: Void = say(
        "the model calls a cache's update(keys:values:) and attends itself, so no scores arrive: "
            + "novelty and recency alone decide what is evicted. Models that call "
            + "attentionWithCacheUpdate are routed.")

    /// The first warning about a configuration; later ones are not printed.
    static func configuration(_ text: String) {
        lock.lock()
        defer { lock.unlock() }
        if !warnedOfConfiguration { say(text) }
        warnedOfConfiguration = true
    }

    private static let lock = NSLock()
    private nonisolated(unsafe) static var warnedOfConfiguration = false

    private static func say(_ text: String) {
        FileHandle.standardError.write(Data("H2OKit: \(text)\n".utf8))
    }
}

extension H2OConfiguration {
    /// Prints what works but is known to serve text badly, once per process.
    func warnOnce() {
        if let warning { H2OWarning.configuration(warning) }
    }
}
