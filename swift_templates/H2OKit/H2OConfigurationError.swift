import Foundation

/// Why a configuration was refused. Fields have Python's names.
public enum H2OConfigurationError: LocalizedError, Hashable, Sendable {
    /// A value lies outside what its field allows.
    case outOfRange(field: String, value: String, allowed: String)
    /// Sinks and heavy hitters leave no row for the newest token.
    case noRecentRows(recent: Int, sinkSize: Int, heavyBudget: Int, maxSize: Int)
    /// Sinks, heavy hitters and recent tokens together exceed `max_size`.
    case budgetsExceedMaxSize(sum: Int, maxSize: Int)
    /// Sinks, pinned and recent positions leave no row to evict.
    case nothingToEvict(held: Int, maxSize: Int)
    /// A key that no configuration has.
    case unknownField(String, known: [String])

    public var errorDescription: String? {
        switch self {
        case .outOfRange(let field, let value, let allowed):
            "\(field) is \(value) in the H2O configuration; it must be \(allowed)."
        case .noRecentRows(let recent, let sinkSize, let heavyBudget, let maxSize):
            "recent_budget is \(recent) in the H2O configuration; it must be at least 1. Of "
                + "max_size \(maxSize) rows, sink_size takes \(sinkSize) and heavy_budget "
                + "\(heavyBudget): raise max_size or lower one of them."
        case .budgetsExceedMaxSize(let sum, let maxSize):
            "sink_size + heavy_budget + recent_budget is \(sum) in the H2O configuration, but "
                + "max_size is \(maxSize). Lower a budget or raise max_size."
        case .nothingToEvict(let held, let maxSize):
            "Sinks, pinned and recent positions hold \(held) of max_size \(maxSize) rows in the "
                + "H2O configuration, which leaves none to evict. Raise max_size to at least "
                + "\(held + 1), or pin less."
        case .unknownField(let field, let known):
            "The H2O configuration has a field \"\(field)\"; its fields are "
                + known.joined(separator: ", ") + "."
        }
    }
}

extension H2OConfiguration {
    func validate() throws {
        let largest = Int(Int32.max)
        try require(.maxSize, maxSize, 1 ... largest)
        try require(.sinkSize, sinkSize, 0 ... largest)
        try require(.heavyBudget, heavyBudget, 0 ... largest)
        try require(.observationWindow, observationWindow, 1 ... largest)
        try require(.decay, decay, 0 ... 1)
        try require(.novelty, novelty, 0 ... Float.greatestFiniteMagnitude)
        try require(.noveltyMargin, noveltyMargin, 0 ... Float.greatestFiniteMagnitude)
        for range in pinned where range.isEmpty || range.lowerBound < 0 {
            throw H2OConfigurationError.outOfRange(
                field: Field.pinned.rawValue, value: "[\(range.lowerBound), \(range.upperBound)]",
                allowed: "a range [begin, end] with 0 <= begin < end")
        }
        guard recentBudget >= 1 else {
            throw H2OConfigurationError.noRecentRows(
                recent: recentBudget, sinkSize: sinkSize, heavyBudget: heavyBudget,
                maxSize: maxSize)
        }
        let sum = sinkSize + heavyBudget + recentBudget
        guard sum <= maxSize else {
            throw H2OConfigurationError.budgetsExceedMaxSize(sum: sum, maxSize: maxSize)
        }
        let held = heldPositions + recentBudget
        guard held < maxSize else {
            throw H2OConfigurationError.nothingToEvict(held: held, maxSize: maxSize)
        }
    }

    /// Positions covered by sinks or pins, each counted once.
    private var heldPositions: Int {
        var held = sinkSize
        var covered = sinkSize
        for range in pinned.sorted(by: { $0.lowerBound < $1.lowerBound }) {
            held += max(0, range.upperBound - max(range.lowerBound, covered))
            covered = max(covered, range.upperBound)
        }
        return held
    }

    private func require<Value: Comparable>(
        _ field: Field, _ value: Value, _ allowed: ClosedRange<Value>
    ) throws {
        guard allowed.contains(value) else {
            throw H2OConfigurationError.outOfRange(
                field: field.rawValue, value: "\(value)",
                allowed: "in \(allowed.lowerBound)...\(allowed.upperBound)")
        }
    }
}
