import Foundation

/// What is printed on standard error, once per process.
enum H2OWarning {
    static let scoresDoNotArrive: Void = say(
        "the model calls a cache's update(keys:values:) and attends itself, so no scores arrive: "
            + "novelty and recency alone decide what is evicted. Models that call "
            + "attentionWithCacheUpdate are routed.")

    static let archiveLimit: Void = say(
        "the archive of a layer has reached its limit: the oldest tokens cannot be recalled any "
            + "more. Raise the limit of recall.")

    /// Why recall is off, once per reason.
    static func recallEnds(_ reason: String) {
        lock.lock()
        defer { lock.unlock() }
        if reasonsWithoutRecall.insert(reason).inserted {
            say("nothing is recalled from here on: \(reason)")
        }
    }

    /// The first warning about a configuration; later ones are not printed.
    static func configuration(_ text: String) {
        lock.lock()
        defer { lock.unlock() }
        if !warnedOfConfiguration { say(text) }
        warnedOfConfiguration = true
    }

    private static let lock = NSLock()
    private nonisolated(unsafe) static var warnedOfConfiguration = false
    private nonisolated(unsafe) static var reasonsWithoutRecall = Set<String>()

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
