/// Numbers between two limits, as sequences of digits.
enum NumberRange {
    /// The most digits of a number; a `Double` represents all of them exactly.
    private static let most = 15
    private static let largest = power(most) - 1
    private static let keywords = [
        "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum",
    ]

    /// The ways to write a number, each a sequence of characters in the notation of the grammar
    /// engine; nil without limits.
    ///
    /// - Throws: ``H2OSessionError/invalidSchema(_:)``
    static func ways(_ node: SchemaNode, whole: Bool) throws -> [[String]]? {
        let limits = try keywords.map { try node.number($0) }
        let all = limits.compactMap { $0 }
        guard !all.isEmpty else { return nil }
        // As many decimals as the limits have, at least two; more if no number is between the
        // limits.
        let enough = (2 ... 9).first { places in all.allSatisfy { units($0, places).isExact } } ?? 9
        for places in whole ? [0] : [enough, 9] {
            guard let range = range(limits, places) else { continue }
            let wholes = places > 0 ? self.range(limits, 0) : nil
            return signed(range, decimals: places) + (wholes.map { signed($0, decimals: 0) } ?? [])
        }
        throw node.noInstance
    }

    /// The numbers between the limits, in units of the last decimal; nil if there are none.
    private static func range(_ limits: [Double?], _ places: Int) -> ClosedRange<Int>? {
        let bounds = limits.enumerated().map { index, limit -> Int? in
            guard let limit else { return nil }
            let (inside, exclusive) = (index < 2 ? 1 : -1, index % 2)
            let (units, isExact) = units(limit, places)
            guard abs(units) < Double(largest) else { return units < 0 ? -largest : largest }
            if isExact { return Int(units.rounded()) + inside * exclusive }
            return Int(units.rounded(inside > 0 ? .up : .down))
        }
        let least = bounds[..<2].compactMap { $0 }.max() ?? -largest
        let most = bounds[2...].compactMap { $0 }.min() ?? largest
        return least <= most ? least ... most : nil
    }

    private static func units(_ value: Double, _ places: Int) -> (units: Double, isExact: Bool) {
        let units = value * Double(power(places))
        return (units, abs(units - units.rounded()) < 1e-6)
    }

    private static func signed(_ range: ClosedRange<Int>, decimals: Int) -> [[String]] {
        var ways = [[String]]()
        if range.lowerBound < 0 {
            let sizes = max(1, -range.upperBound) ... -range.lowerBound
            ways += unsigned(sizes, decimals: decimals).map { ["\"-\""] + $0 }
        }
        if range.upperBound >= 0 {
            ways += unsigned(max(0, range.lowerBound) ... range.upperBound, decimals: decimals)
        }
        return ways
    }

    /// Sequences for all numbers in the range, one for each number of digits and leading digits.
    private static func unsigned(_ range: ClosedRange<Int>, decimals: Int) -> [[String]] {
        let fewest = decimals + 1
        let counts = fewest ... max(fewest, String(range.upperBound).count)
        return counts.flatMap { count -> [[String]] in
            let least = count == fewest ? range.lowerBound : max(range.lowerBound, power(count - 1))
            let most = min(range.upperBound, power(count) - 1)
            guard least <= most else { return [] }
            return between(digits(least, count), digits(most, count)).map {
                var parts = $0.map {
                    $0.count == 1 ? "\"\($0.lowerBound)\"" : "[\($0.lowerBound)-\($0.upperBound)]"
                }
                if decimals > 0 { parts.insert("\".\"", at: count - decimals) }
                return parts
            }
        }
    }

    /// Sequences of digits that cover exactly the numbers between two limits with the same number
    /// of digits.
    private static func between(
        _ least: ArraySlice<Int>, _ most: ArraySlice<Int>
    ) -> [[ClosedRange<Int>]] {
        guard let low = least.first, let high = most.first else { return [[]] }
        let (lows, highs) = (least.dropFirst(), most.dropFirst())
        let (zeros, nines) = (lows.map { _ in 0 }[...], lows.map { _ in 9 }[...])
        if low == high { return between(lows, highs).map { [low ... low] + $0 } }
        var ways = [[ClosedRange<Int>]]()
        var (first, last) = (low, high)
        if lows.contains(where: { $0 != 0 }) {
            ways += between(lows, nines).map { [low ... low] + $0 }
            first += 1
        }
        if highs.contains(where: { $0 != 9 }) {
            ways += between(zeros, highs).map { [high ... high] + $0 }
            last -= 1
        }
        if first <= last { ways.append([first ... last] + zeros.map { _ in 0 ... 9 }) }
        return ways
    }

    private static func digits(_ number: Int, _ count: Int) -> ArraySlice<Int> {
        let digits = String(number).compactMap(\.wholeNumberValue)
        return ArraySlice([Int](repeating: 0, count: count - digits.count) + digits)
    }

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
                guard let atom = try atom(), let part = counted(atom) else { return nil }
                parts.append(part)
            }
            ways.append(.sequence(parts))
            if isWhole { _ = took("$") }
        } while took("|")
        return try grammar.rule(.choice(ways))
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
        case "[": return try set()
        case ".": return .set(GrammarPart.plainCharacters)
        case "\\":
            guard let escaped = rest.popFirst() else { return nil }
            if let members = Self.classes[escaped] { return try part(members, isNegative: false) }
            return Self.isPlain(escaped) ? literal(escaped) : nil
        case "*", "+", "?", "{", "}", "]", "^": return nil
        default: return literal(next)
        }
    }

    /// A character that stands for itself in a string.
    private func literal(_ scalar: Unicode.Scalar) -> GrammarPart? {
        guard scalar >= " ", scalar != "\"", scalar != "\\", scalar != "\u{7F}" else { return nil }
        return .quoted(String(scalar))
    }

    /// Reads the rest of a set of ASCII characters, such as `[a-z]`.
    private mutating func set() throws -> GrammarPart? {
        let isNegative = took("^")
        var members = Set<Unicode.Scalar>()
        while rest.first != "]" {
            if rest.first == "\\", let second = rest.dropFirst().first,
                let known = Self.classes[second]
            {
                rest.removeFirst(2)
                members.formUnion(known)
                continue
            }
            guard let first = member() else { return nil }
            var last = first
            if rest.first == "-", rest.dropFirst().first != "]" {
                rest.removeFirst()
                guard let end = member() else { return nil }
                last = end
            }
            guard first <= last else { return nil }
            members.formUnion((first.value ... last.value).compactMap(Unicode.Scalar.init))
        }
        rest.removeFirst()
        return try part(members, isNegative: isNegative)
    }

    /// Reads one end of a range in a set.
    private mutating func member() -> Unicode.Scalar? {
        guard var scalar = rest.popFirst() else { return nil }
        if scalar == "\\" {
            guard let escaped = rest.popFirst(), Self.isPlain(escaped) else { return nil }
            scalar = escaped
        }
        return scalar.isASCII ? scalar : nil
    }

    private func part(_ members: Set<Unicode.Scalar>, isNegative: Bool) throws -> GrammarPart? {
        try grammar.spend(SchemaGrammar.set)
        let kept = Self.plain.filter { members.contains($0) != isNegative }
        guard !kept.isEmpty else { return nil }
        let codes = kept.map { "\\x" + String($0.value, radix: 16, uppercase: true) }.joined()
        return .set(codes + (isNegative ? GrammarPart.charactersBeyondASCII : ""))
    }

    /// Whether a backslash and this character together mean the character itself.
    private static func isPlain(_ scalar: Unicode.Scalar) -> Bool {
        !scalar.properties.isAlphabetic && !("0" ... "9").contains(scalar)
    }

    private static let plain: [Unicode.Scalar] = (0x20 ... 0x7E).compactMap(Unicode.Scalar.init)
        .filter { $0 != "\"" && $0 != "\\" }
    private static let classes: [Unicode.Scalar: Set<Unicode.Scalar>] = [
        "d": Set(plain.filter { ("0" ... "9").contains($0) }),
        "w": Set(plain.filter { !isPlain($0) || $0 == "_" }),
    ]

    /// The last part, repeated as often as the quantifier after it says.
    private mutating func counted(_ part: GrammarPart) -> GrammarPart? {
        var counts = GrammarPart.Counts()
        if took("?") {
            counts.most = 1
        } else if took("+") {
            counts.least = 1
        } else if took("{") {
            guard let end = rest.firstIndex(of: "}") else { return nil }
            let ends = String(rest[..<end]).split(
                separator: ",", omittingEmptySubsequences: false)
            rest = rest[rest.index(after: end)...]
            guard ends.count < 3, let least = Int(ends[0]) else { return nil }
            let isOpen = ends.count == 2 && ends[1].isEmpty
            guard let most = isOpen ? least : Int(ends[ends.count - 1]),
                least <= most, most <= SchemaLimits.count
            else { return nil }
            counts = GrammarPart.Counts(least: least, most: isOpen ? nil : most)
        } else if !took("*") {
            return part
        }
        _ = took("?")
        return .repeated(part, counts)
    }

    private mutating func took(_ scalar: Unicode.Scalar) -> Bool {
        guard rest.first == scalar else { return false }
        rest.removeFirst()
        return true
    }
}
