import Foundation

/// What is said on standard error, once per process.
enum H2OWarning {
    static let scoresDoNotArrive: Void = say(
        "the model calls a cache's update(keys:values:) and attends itself, so no scores arrive: "
            + "novelty and recency alone decide what is evicted. Models that call "
            + "attentionWithCacheUpdate are routed.")

    static let shortRecentWindow: Void = say(
        "recent_budget is below 64: text degrades where fewer of the newest tokens are kept. "
            + "Raise max_size or recent_budget.")

    private static func say(_ text: String) {
        FileHandle.standardError.write(Data("H2OKit: \(text)\n".utf8))
    }
}

extension H2OConfiguration {
    /// Says what works but is known to serve text badly.
    func warnOnce() {
        if recentBudget < 64 { H2OWarning.shortRecentWindow }
    }
}
