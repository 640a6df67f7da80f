import Foundation

/// What a replay found, for `h2o-pack parity`.
struct ParityReport: Encodable {
    let format = 1
    var cases = [Case]()

    struct Case {
        let name: String
        let dtype: String
        let layers: Int
        let steps: Int
        var comparisons = 0
        /// In relation to the largest output of the step where that is above 1.
        var largestOutputDifference: Float = 0
        /// In relation to the score where that is above 1.
        var largestScoreDifference: Float = 0
        var positionsEqual = true
        var firstDifference: Difference?
    }

    struct Difference: Encodable {
        let layer: Int
        let step: Int
        let kind: Kind
        let detail: String

        enum Kind: String, Encodable {
            case positions, held, output, scores
        }
    }

    func write(to file: URL) throws {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
        try encoder.encode(self).write(to: file)
    }
}

extension ParityReport.Case: Encodable {
    private enum Field: String, CodingKey {
        case name, dtype, layers, steps, comparisons
        case largestOutputDifference = "largest_output_difference"
        case largestScoreDifference = "largest_score_difference"
        case positionsEqual = "positions_equal"
        case firstDifference = "first_difference"
    }

    func encode(to encoder: any Encoder) throws {
        var fields = encoder.container(keyedBy: Field.self)
        try fields.encode(name, forKey: .name)
        try fields.encode(dtype, forKey: .dtype)
        try fields.encode(layers, forKey: .layers)
        try fields.encode(steps, forKey: .steps)
        try fields.encode(comparisons, forKey: .comparisons)
        // JSON has no infinity.
        let largest = Float.greatestFiniteMagnitude
        try fields.encode(
            min(largestOutputDifference, largest), forKey: .largestOutputDifference)
        try fields.encode(min(largestScoreDifference, largest), forKey: .largestScoreDifference)
        try fields.encode(positionsEqual, forKey: .positionsEqual)
        try fields.encode(firstDifference, forKey: .firstDifference)
    }
}
