/// What the replay of a case found.
package struct ParityResult: Sendable {
    package let name: String
    package let dtype: String
    package let layers: Int
    package let steps: Int
    package internal(set) var comparisons = 0
    /// In relation to the largest output of the step where that is above 1.
    package internal(set) var largestOutputDifference: Float = 0
    /// In relation to the score where that is above 1.
    package internal(set) var largestScoreDifference: Float = 0
    package internal(set) var positionsEqual = true
    package internal(set) var firstDifference: Difference?

    package init(name: String, dtype: String, layers: Int, steps: Int) {
        (self.name, self.dtype, self.layers, self.steps) = (name, dtype, layers, steps)
    }

    package struct Difference: Encodable, Sendable {
        package let layer: Int
        package let step: Int
        package let kind: Kind
        package let detail: String

        package enum Kind: String, Encodable, Sendable {
            case positions, held, output, scores
        }
    }
}
