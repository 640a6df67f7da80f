import Foundation
import H2OKit

/// What a replay found, for `h2o-pack parity`.
struct ParityReport: Encodable {
    let format = 1
    var cases = [ParityResult]()

    func write(to file: URL) throws {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
        try encoder.encode(self).write(to: file)
    }
}

extension ParityResult: Encodable {
    private enum Field: String, CodingKey {
        case name, dtype, layers, steps, comparisons
        case largestOutputDifference = "largest_output_difference"
        case largestScoreDifference = "largest_score_difference"
        case positionsEqual = "positions_equal"
        case firstDifference = "first_difference"
    }

    package func encode(to encoder: any Encoder) throws {
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
