import Foundation

extension H2OConfiguration: Codable {
    /// The fields by their names in files, which are Python's.
    enum Field: String, CodingKey, CaseIterable {
        case maxSize = "max_size"
        case sinkSize = "sink_size"
        case heavyBudget = "heavy_budget"
        case recentBudget = "recent_budget"
        case score
        case decay
        case novelty
        case pinned
        case observationWindow = "observation_window"
        case noveltyMargin = "novelty_margin"
    }

    /// Reads a configuration; fields other than `max_size` may be missing and have
    /// their defaults then.
    ///
    /// - Throws: `DecodingError`, ``H2OConfigurationError``
    public init(from decoder: any Decoder) throws {
        let names = Field.allCases.map(\.rawValue)
        try decoder.refuseFields(except: names) {
            H2OConfigurationError.unknownField($0, known: names)
        }
        let fields = try decoder.container(keyedBy: Field.self)
        try self.init(
            maxSize: fields.decode(Int.self, forKey: .maxSize),
            sinkSize: fields.decodeIfPresent(Int.self, forKey: .sinkSize) ?? 4,
            heavyBudget: fields.decodeIfPresent(Int.self, forKey: .heavyBudget),
            recentBudget: fields.decodeIfPresent(Int.self, forKey: .recentBudget),
            score: fields.decodeIfPresent(Score.self, forKey: .score) ?? .peak,
            decay: fields.decodeIfPresent(Float.self, forKey: .decay),
            novelty: fields.decodeIfPresent(Float.self, forKey: .novelty) ?? 2,
            pinned: (fields.decodeIfPresent([[Int]].self, forKey: .pinned) ?? []).map(Self.range),
            observationWindow: fields.decodeIfPresent(Int.self, forKey: .observationWindow) ?? 64,
            noveltyMargin: fields.decodeIfPresent(Float.self, forKey: .noveltyMargin) ?? 0)
    }

    public func encode(to encoder: any Encoder) throws {
        var fields = encoder.container(keyedBy: Field.self)
        try fields.encode(maxSize, forKey: .maxSize)
        try fields.encode(sinkSize, forKey: .sinkSize)
        try fields.encode(heavyBudget, forKey: .heavyBudget)
        try fields.encode(recentBudget, forKey: .recentBudget)
        try fields.encode(score, forKey: .score)
        try fields.encode(decay, forKey: .decay)
        try fields.encode(novelty, forKey: .novelty)
        try fields.encode(noveltyMargin, forKey: .noveltyMargin)
        try fields.encode(pinned.map { [$0.lowerBound, $0.upperBound] }, forKey: .pinned)
        try fields.encode(observationWindow, forKey: .observationWindow)
    }

    private static func range(_ bounds: [Int]) throws -> Range<Int> {
        guard bounds.count == 2, bounds[0] < bounds[1] else {
            throw H2OConfigurationError.outOfRange(
                field: Field.pinned.rawValue, value: "\(bounds)",
                allowed: "ranges [begin, end] with 0 <= begin < end")
        }
        return bounds[0] ..< bounds[1]
    }
}
