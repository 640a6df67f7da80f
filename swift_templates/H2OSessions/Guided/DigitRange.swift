/// Numbers between two limits, as the digits that they are written with.
struct DigitRange: Hashable {
    /// The limits, in units of the last decimal; nil has no limits.
    let limits: ClosedRange<Int>?
    /// Digits after the point; 0 is whole numbers only.
    let decimals: Int

    /// The most digits of a number, which a `Double` holds exactly.
    private static let most = 15
    private static let largest = power(most) - 1

    static let unlimited = DigitRange()

    private init() { (limits, decimals) = (nil, 9) }

    /// - Throws: ``H2OSessionError/invalidSchema(_:)``, or that a limit is no number
    init(_ node: SchemaNode, whole: Bool) throws {
        let lower = try (node.number("minimum"), node.number("exclusiveMinimum"))
        let upper = try (node.number("maximum"), node.number("exclusiveMaximum"))
        let all = [lower.0, lower.1, upper.0, upper.1].compactMap { $0 }
        guard whole || !all.isEmpty else {
            self = .unlimited
            return
        }
        // As many decimals as the limits have, two at least; more where nothing is between them.
        let enough = (2 ... 9).first { places in all.allSatisfy { Self.isExact($0, places) } } ?? 9
        for places in whole ? [0] : Array(enough ... 9) {
            let least = [
                lower.0.map { Self.scaled($0, places, .up, exclusive: false) },
                lower.1.map { Self.scaled($0, places, .up, exclusive: true) },
            ].compactMap { $0 }.max() ?? -Self.largest
            let most = [
                upper.0.map { Self.scaled($0, places, .down, exclusive: false) },
                upper.1.map { Self.scaled($0, places, .down, exclusive: true) },
            ].compactMap { $0 }.min() ?? Self.largest
            if least <= most {
                (limits, decimals) = (least ... most, places)
                return
            }
        }
        throw node.noInstance
    }

    /// Numbers without limits, in the notation of the grammar engine.
    static let anyNumber = #""-"? ("0" | [1-9] [0-9]{0,14}) ("." [0-9]{1,9})?"#

    /// The ways to write a number, each a sequence of characters in the notation of the grammar
    /// engine; nil without limits.
    var ways: [[String]]? {
        guard let limits else { return nil }
        var ways = Self.signed(limits, decimals: decimals)
        if decimals > 0 {
            let unit = Double(Self.power(decimals))
            let least = Int((Double(limits.lowerBound) / unit).rounded(.up))
            let most = Int((Double(limits.upperBound) / unit).rounded(.down))
            if least <= most { ways += Self.signed(least ... most, decimals: 0) }
        }
        return ways
    }

    private static func isExact(_ value: Double, _ places: Int) -> Bool {
        let units = value * Double(power(places))
        return abs(units - units.rounded()) < 1e-6
    }

    /// A limit in units of the last decimal, towards the inside of the range.
    private static func scaled(
        _ value: Double, _ places: Int, _ inside: FloatingPointRoundingRule, exclusive: Bool
    ) -> Int {
        let step = inside == .up ? 1 : -1
        let units = value * Double(power(places))
        guard abs(units) < Double(largest) else { return units < 0 ? -largest : largest }
        guard isExact(value, places) else { return Int(units.rounded(inside)) }
        return Int(units.rounded()) + (exclusive ? step : 0)
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

    /// One way for each number of digits and leading digits.
    private static func unsigned(_ range: ClosedRange<Int>, decimals: Int) -> [[String]] {
        let fewest = decimals + 1
        let counts = fewest ... max(fewest, String(range.upperBound).count)
        return counts.flatMap { count -> [[String]] in
            let least = count == fewest ? range.lowerBound : max(range.lowerBound, power(count - 1))
            let most = min(range.upperBound, power(count) - 1)
            guard least <= most else { return [] }
            return between(digits(least, count), digits(most, count)).map {
                var parts = $0.map(text)
                if decimals > 0 { parts.insert("\".\"", at: count - decimals) }
                return parts
            }
        }
    }

    /// Sequences of digits, as many as each limit has, that cover just what is between.
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

    private static func text(_ digits: ClosedRange<Int>) -> String {
        digits.count == 1
            ? "\"\(digits.lowerBound)\"" : "[\(digits.lowerBound)-\(digits.upperBound)]"
    }

    private static func power(_ exponent: Int) -> Int {
        (0 ..< exponent).reduce(1) { power, _ in power * 10 }
    }
}
