import MLXLMCommon

/// One thing that was looked at, and what was expected of it.
package struct ProofCheck: Sendable {
    /// How measured and expected compare.
    enum Rule: String, Sendable {
        case none
        case equal
        case atMost = "at most"
    }

    /// Where an expected value is from.
    enum Source: String, Sendable {
        case plan
        case reference
        case goal
    }

    /// Its part, "/", and what of it.
    let id: String
    /// Characters that a report takes of ``how`` and ``why``.
    static let longestText = 400
    let unit: String
    let how: String
    /// Seconds after the start.
    let at: Double
    /// nil where it was not run; ``why`` then says why.
    private(set) var measured: Double?
    private(set) var why = ""
    private var rule = Rule.none
    private var expected: Double?
    private var source: Source?
    private var tolerance = 0.0
    /// The checks whose quotient it is.
    private var ratioOf: [String]?

    /// A check that ran. Nothing is expected of it.
    init(_ id: String, _ measured: Double, unit: String, how: String, at: Double) {
        (self.id, self.unit, self.how, self.at) = (id, unit, how, at)
        self.measured = measured
    }

    /// A check that was not run.
    init(_ id: String, unit: String, how: String, why: String, at: Double) {
        (self.id, self.unit, self.how, self.at) = (id, unit, how, at)
        self.why = why
    }

    /// The same, held against the plan.
    func planned(_ rule: Rule, _ bytes: Int, tolerance: Double = 0) -> ProofCheck {
        var check = expected(rule, Double(bytes), from: .plan)
        check.tolerance = tolerance
        return check
    }

    /// The same, held against a value.
    func expected(_ rule: Rule, _ value: Double, from source: Source) -> ProofCheck {
        var check = self
        (check.rule, check.expected, check.source) = (rule, value, source)
        return check
    }

    /// The quotient of two checks that ran.
    static func ratio(
        _ id: String, _ one: ProofCheck, _ other: ProofCheck, how: String, at: Double
    ) -> ProofCheck? {
        guard let value = one.measured, let divisor = other.measured, divisor > 0 else {
            return nil
        }
        var check = ProofCheck(id, value / divisor, unit: "ratio", how: how, at: at)
        check.ratioOf = [one.id, other.id]
        return check
    }

    /// What the rule says of the values.
    var verdict: ProofVerdict {
        guard let measured else { return .notRun }
        guard let expected else { return .measured }
        let agrees =
            rule == .equal ? measured == expected : measured <= expected * (1 + tolerance)
        return agrees ? .asExpected : .differs
    }

    var json: JSONValue {
        .object([
            "id": .string(id), "rule": .string(rule.rawValue), "expected": number(expected),
            "expected_from": .string(source?.rawValue ?? ""),
            "measured": number(measured), "unit": .string(unit),
            "tolerance": .double(tolerance), "verdict": .string(verdict.rawValue),
            "how": .string(how), "why": .string(why),
            "ratio_of": ratioOf.map { .array($0.map(JSONValue.string)) } ?? .null,
            "at": .double(at),
        ])
    }

    private func number(_ value: Double?) -> JSONValue { value.map(JSONValue.double) ?? .null }
}

package enum ProofVerdict: String, Sendable {
    case asExpected = "as expected"
    case differs
    case measured
    case notRun = "not run"
}
