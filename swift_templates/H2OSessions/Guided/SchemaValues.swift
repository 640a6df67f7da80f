import Foundation

/// Numbers between two limits, as a grammar of their digits.
struct NumberRange {
    private let grammar: SchemaGrammar
    /// The most decimals of a number.
    private let decimals: Int
    /// The numbers without their sign, in units of the last decimal.
    private let range: ClosedRange<Int>

    /// The largest number, in units of the last decimal; a `Double` represents it exactly.
    private static let largest = power(15) - 1

    /// The numbers that a node of type `number` or `integer` allows.
    ///
    /// - Throws: ``H2OSessionError/invalidSchema(_:)``
    static func part(
        of node: SchemaNode, _ type: String, _ grammar: SchemaGrammar
    ) throws -> GrammarPart {
        let limits = try ["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"]
            .map { try node[$0]?.number() }
        let all = limits.compactMap { $0 }
        guard !all.isEmpty else { return .common(type) }
        // As many decimals as the limits have, at least two; more if no number is between the
        // limits.
        let enough = (2 ... 9).first { places in all.allSatisfy { units($0, places).isExact } } ?? 9
        for decimals in type == "integer" ? [0] : [enough, 9] {
            guard let range = range(limits, decimals) else { continue }
            let signs = [("-", -range.upperBound ... -range.lowerBound, 1), ("", range, 0)]
            return try grammar.choice(
                signs.compactMap { sign, range, least in
                    guard range.upperBound >= least else { return nil }
                    let range = NumberRange(
                        grammar: grammar, decimals: decimals,
                        range: max(least, range.lowerBound) ... range.upperBound)
                    return .sequence([.quoted(sign), try range.number()])
                })
        }
        throw node.noInstance
    }

    /// The numbers between the limits, in units of the last decimal; nil if there are none.
    private static func range(_ limits: [Double?], _ decimals: Int) -> ClosedRange<Int>? {
        let bounds = limits.enumerated().map { index, limit -> Int? in
            guard let limit else { return nil }
            let (inside, exclusive) = (index < 2 ? 1 : -1, index % 2)
            let (units, isExact) = units(limit, decimals)
            guard abs(units) < Double(largest) else { return units < 0 ? -largest : largest }
            if isExact { return Int(units.rounded()) + inside * exclusive }
            return Int(units.rounded(inside > 0 ? .up : .down))
        }
        let least = bounds[..<2].compactMap { $0 }.max() ?? -largest
        let most = bounds[2...].compactMap { $0 }.min() ?? largest
        return least <= most ? least ... most : nil
    }

    private static func units(_ value: Double, _ decimals: Int) -> (units: Double, isExact: Bool) {
        let units = value * Double(power(decimals))
        return (units, abs(units - units.rounded()) < 1e-6)
    }

    private func number() throws -> GrammarPart {
        try grammar.rule(digits(0) { try rest($0, nil) })
    }

    /// What may follow the digits of a number; nil if no number in the range begins with them.
    ///
    /// - Parameters:
    ///   - digits: the digits as a number, without the point
    ///   - left: the most decimals that may follow; nil for digits before the point
    private func rest(_ digits: Int, _ left: Int?) throws -> GrammarPart? {
        // `counts` are the numbers of further digits before the point with which all numbers are in
        // the range. `isPartly` says whether only some are in it for another number of digits.
        var (counts, isPartly, count) = ([Int](), false, 0)
        var unit = Self.power(left ?? decimals)
        repeat {
            let all = digits * unit ... (digits + 1) * unit - 1
            if all.clamped(to: range) == all {
                counts.append(count)
            } else if all.overlaps(range) {
                isPartly = true
            }
            (unit, count) = (unit * 10, count + 1)
        } while left == nil && digits > 0 && digits * unit <= range.upperBound
        guard isPartly else {
            guard let least = counts.first, let most = counts.last else { return nil }
            if let left { return any(left == decimals ? 1 : 0, left) }
            guard decimals > 0 else { return any(least, most) }
            let fraction = GrammarPart.sequence([.quoted("."), any(1, decimals)])
            return .sequence([any(least, most), fraction.times(0 ... 1)])
        }
        var ways = [GrammarPart]()
        let isAfterPoint = left == decimals && decimals > 0
        if !isAfterPoint, range.contains(digits * Self.power(left ?? decimals)) {
            ways.append(.nothing)
        }
        if left == nil, decimals > 0, let fraction = try rest(digits, decimals) {
            ways.append(.sequence([.quoted("."), fraction]))
        }
        if let left { ways += try self.digits(digits) { try rest($0, left - 1) } }
        if left == nil, digits > 0 { ways += try self.digits(digits) { try rest($0, nil) } }
        return ways.isEmpty ? nil : try grammar.rule(ways)
    }

    /// One more digit and the text that may follow it. Consecutive digits that may be followed by
    /// the same text are one alternative.
    private func digits(
        _ before: Int, _ rest: (Int) throws -> GrammarPart?
    ) throws -> [GrammarPart] {
        var ways = [(first: Int, last: Int, rest: GrammarPart)]()
        for digit in 0 ... 9 {
            guard let rest = try rest(before * 10 + digit) else { continue }
            if let last = ways.last, last.last == digit - 1, last.rest.text == rest.text {
                ways[ways.count - 1].last = digit
            } else {
                ways.append((digit, digit, rest))
            }
        }
        return ways.map { .sequence([.set("\($0.first)-\($0.last)"), $0.rest]) }
    }

    private func any(_ least: Int, _ most: Int) -> GrammarPart { .set("0-9").times(least ... most) }

    private static func power(_ exponent: Int) -> Int {
        (0 ..< exponent).reduce(1) { power, _ in power * 10 }
    }
}

/// Turns the regular expression of a `pattern` into a grammar of the strings that match it
/// completely and need no escapes in JSON.
struct PatternReader {
    private let grammar: SchemaGrammar
    private var rest: Substring.UnicodeScalarView
    /// The number of open groups.
    private var depth = 0

    /// - Throws: ``H2OSessionError/invalidSchema(_:)`` if reading the pattern takes too many steps
    /// - Returns: nil for an expression that is too long, or has look-around, references, inner
    ///   anchors or other things that a grammar cannot express
    static func part(of pattern: String, _ grammar: SchemaGrammar) throws -> GrammarPart? {
        guard pattern.unicodeScalars.count <= SchemaLimits.pattern else { return nil }
        var reader = PatternReader(grammar: grammar, rest: pattern[...].unicodeScalars)
        let part = try reader.alternatives(isWhole: true)
        return reader.rest.isEmpty ? part : nil
    }

    /// - Parameter isWhole: whether each alternative may have anchors around it
    private mutating func alternatives(isWhole: Bool = false) throws -> GrammarPart? {
        var ways = [GrammarPart]()
        repeat {
            if isWhole { _ = took("^") }
            var parts = [GrammarPart]()
            while let next = rest.first, !["|", ")", "$"].contains(next) {
                guard let atom = try atom(), let counts = counts() else { return nil }
                parts.append(atom.times(counts))
            }
            ways.append(.sequence(parts))
            if isWhole { _ = took("$") }
        } while took("|")
        return try grammar.choice(ways)
    }

    private mutating func atom() throws -> GrammarPart? {
        let next = rest.removeFirst()
        switch next {
        case "(":
            if took("?"), !took(":") { return nil }
            depth += 1
            defer { depth -= 1 }
            guard depth <= SchemaLimits.nesting, let inner = try alternatives(), took(")") else {
                return nil
            }
            return inner
        case "[":
            var expression = "["
            while rest.first != "]" {
                guard let member = rest.popFirst().flatMap({ $0 == "\\" ? escaped() : "\($0)" })
                else { return nil }
                // In a set of Foundation's expressions, these two have a special meaning.
                expression += member == "[" || member == "&" ? "\\" + member : member
            }
            rest.removeFirst()
            return try set(expression + "]")
        case "\\": return try escaped().flatMap(set)
        case ".": return try set(".")
        case "*", "+", "?", "{", "}", "]", "^": return nil
        default:
            let isPlain = next >= " " && next != "\"" && next != "\u{7F}"
            return isPlain ? .quoted(String(next)) : nil
        }
    }

    /// Reads the character after a backslash, and returns both; nil if they do not describe one
    /// character.
    private mutating func escaped() -> String? {
        guard let next = rest.popFirst() else { return nil }
        let isLetter = next.properties.isAlphabetic || ("0" ... "9").contains(next)
        return !isLetter || "dDsSwW".unicodeScalars.contains(next) ? "\\\(next)" : nil
    }

    /// The characters that an expression for one character matches.
    private func set(_ expression: String) throws -> GrammarPart? {
        if let part = grammar.sets[expression] { return part }
        try grammar.spend(SchemaGrammar.set)
        // Foundation would subtract what follows two hyphens.
        guard !expression.contains("--"),
            let matcher = try? NSRegularExpression(pattern: expression)
        else { return nil }
        let probes = Array(Self.probes.utf16)
        let codes = matcher.matches(in: Self.probes, range: NSRange(probes.indices))
            .map { probes[$0.range.location] }
        let plain = codes.filter { $0 < 0x7F }
            .map { "\\x" + String($0, radix: 16, uppercase: true) }
        guard !plain.isEmpty else { return nil }
        let isBroad = codes.count - plain.count == 3 && expression.utf8.allSatisfy { $0 < 0x80 }
        let set = GrammarPart.set(
            plain.joined() + (isBroad ? GrammarPart.charactersBeyondASCII : ""))
        grammar.sets[expression] = set
        return set
    }

    /// The ASCII characters that need no escape in a string, and a letter, a sign and a space that
    /// stand for the characters beyond ASCII.
    private static let probes =
        String(String.UnicodeScalarView((0x20 ..< 0x7F).compactMap(Unicode.Scalar.init)))
        .filter { $0 != "\"" && $0 != "\\" } + "\u{e9}\u{2192}\u{2003}"

    /// Reads how often the preceding atom may occur.
    private mutating func counts() -> ClosedRange<Int>? {
        var counts = 0 ... Int.max
        if took("?") {
            counts = 0 ... 1
        } else if took("+") {
            counts = 1 ... .max
        } else if took("{") {
            guard let end = rest.firstIndex(of: "}") else { return nil }
            let ends = String(rest[..<end]).split(separator: ",", omittingEmptySubsequences: false)
            rest = rest[rest.index(after: end)...]
            let most = ends.count == 2 && ends[1].isEmpty ? Int.max : Int(ends[ends.count - 1])
            let areDigits = ends.allSatisfy { $0.utf8.allSatisfy { 0x30 ... 0x39 ~= $0 } }
            guard areDigits, ends.count < 3, let least = Int(ends[0]), let most, least <= most,
                least <= SchemaLimits.count, most <= SchemaLimits.count || most == .max
            else { return nil }
            counts = least ... most
        } else if !took("*") {
            return 1 ... 1
        }
        _ = took("?")
        return counts
    }

    private mutating func took(_ scalar: Unicode.Scalar) -> Bool {
        guard rest.first == scalar else { return false }
        rest.removeFirst()
        return true
    }
}
