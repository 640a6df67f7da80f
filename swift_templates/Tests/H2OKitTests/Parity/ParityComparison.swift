import MLX

/// The result of replaying a case of a trace.
struct ParityResult: Encodable, Sendable {
    let name: String
    let dtype: String
    let layers: Int
    let steps: Int
    var comparisons = 0
    /// The largest difference of an output, relative to the largest output of the step if that is
    /// above 1. Finite, because JSON cannot contain infinity.
    var largestOutputDifference: Float = 0
    /// The largest difference of a score, relative to the score if that is above 1. Finite too.
    var largestScoreDifference: Float = 0
    var positionsEqual = true
    var firstDifference: Difference?

    struct Difference: Encodable, Sendable {
        let layer: Int
        let step: Int
        let kind: Kind
        let detail: String

        enum Kind: String, Encodable, Sendable {
            case positions, output, scores
        }
    }
}

/// Compares the results of one layer after one step with the trace.
struct ParityComparison {
    let layer: Int
    let step: Int
    let tolerance: Float

    /// Checks that outputs agree within `tolerance`, relative to the largest output if that is
    /// larger than 1.
    func outputs(_ ours: MLXArray, _ traced: MLXArray, in result: inout ParityResult) {
        let traced = traced.asType(.float32).asArray(Float.self)
        let scale = traced.reduce(1) { max($0, abs($1)) }
        let difference =
            largestDifference(ours.asType(.float32).asArray(Float.self), traced) / scale
        result.largestOutputDifference = max(result.largestOutputDifference, difference.finite)
        note(
            .output, in: &result,
            difference <= tolerance
                ? nil : "the outputs differ by \(difference); at most \(tolerance) is allowed")
    }

    /// Checks that each head keeps the same positions; their rows may differ.
    func positions(_ ours: MLXArray, _ traced: MLXArray, in result: inout ParityResult) {
        let (ours, traced) = (kept(ours), kept(traced))
        result.positionsEqual = result.positionsEqual && ours == traced
        note(.positions, in: &result, firstHead(ours, traced))
    }

    private func firstHead(_ ours: [[Int32]], _ traced: [[Int32]]) -> String? {
        guard ours != traced else { return nil }
        let head = zip(ours, traced).enumerated().first { $1.0 != $1.1 }
        return head.map { "head \($0) \(describe($1.0, unlike: $1.1))" }
            ?? "the trace has \(traced.count) heads, the cache has \(ours.count)"
    }

    /// Checks that scores of the same position agree within `allowed`, relative to the score if
    /// that is larger than 1.
    func scores(
        _ ours: (positions: MLXArray, scores: MLXArray),
        _ traced: (positions: MLXArray, scores: MLXArray), within allowed: Float,
        in result: inout ParityResult
    ) {
        var text: String?
        for (head, (ours, traced)) in zip(
            byPosition(ours.positions, ours.scores), byPosition(traced.positions, traced.scores)
        ).enumerated() {
            for (position, score) in ours.sorted(by: { $0.key < $1.key }) {
                guard let expected = traced[position] else { continue }
                let scaled = largestDifference([score], [expected]) / max(1, abs(expected))
                result.largestScoreDifference = max(result.largestScoreDifference, scaled.finite)
                if text == nil, !(scaled <= allowed) {
                    text =
                        "head \(head) has the score \(score) at position \(position); "
                        + "the trace has \(expected)"
                }
            }
        }
        note(.scores, in: &result, text)
    }

    private func note(
        _ kind: ParityResult.Difference.Kind, in result: inout ParityResult, _ text: String?
    ) {
        result.comparisons += 1
        if let text, result.firstDifference == nil {
            result.firstDifference = .init(layer: layer, step: step, kind: kind, detail: text)
        }
    }

    /// The sorted positions of each sequence and head in `[B, Hkv, C]`.
    private func kept(_ positions: MLXArray) -> [[Int32]] {
        heads(positions.asArray(Int32.self), positions).map { $0.filter { $0 >= 0 }.sorted() }
    }

    private func byPosition(_ positions: MLXArray, _ scores: MLXArray) -> [[Int32: Float]] {
        zip(
            heads(positions.asArray(Int32.self), positions),
            heads(scores.asArray(Float.self), scores)
        ).map { positions, scores in
            let inUse = zip(positions, scores).filter { $0.0 >= 0 }
            return Dictionary(inUse, uniquingKeysWith: { first, _ in first })
        }
    }

    private func heads<Value>(_ values: [Value], _ array: MLXArray) -> [ArraySlice<Value>] {
        stride(from: 0, to: values.count, by: max(1, array.dim(2))).map {
            values[$0 ..< $0 + array.dim(2)]
        }
    }

    private func describe(_ ours: [Int32], unlike traced: [Int32]) -> String {
        var (surplus, lacking) = ([Int32](), [Int32]())
        for change in ours.difference(from: traced) {
            switch change {
            case .insert(_, let position, _): surplus.append(position)
            case .remove(_, let position, _): lacking.append(position)
            }
        }
        return "keeps \(surplus) instead of the trace's \(lacking.sorted())"
    }
}

extension Float {
    /// The largest finite number for infinity, otherwise the number itself.
    fileprivate var finite: Float { min(self, .greatestFiniteMagnitude) }
}

/// The largest |a - b|; infinite if a value is not a number or the counts differ.
func largestDifference(_ a: [Float], _ b: [Float]) -> Float {
    guard a.count == b.count else { return .infinity }
    return zip(a, b).reduce(0) { largest, pair in
        let difference = abs(pair.0 - pair.1)
        return difference.isNaN ? .infinity : max(largest, difference)
    }
}
