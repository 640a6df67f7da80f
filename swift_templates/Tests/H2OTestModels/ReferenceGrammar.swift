import H2OGrammar
import H2OSessions
import MLXLMCommon

/// A simple implementation of a grammar in the notation of the grammar engine. It computes all
/// places of the grammar that a text may have reached.
package final class ReferenceGrammar: TokenGrammar {
    private let rules: [String: Part]
    private let letters: [String]
    private let end: Int
    private var texts = [String]()

    /// - Parameters:
    ///   - grammar: rules in the notation of the grammar engine
    ///   - letters: the text of each token
    ///   - end: the token that ends a reply
    package init(_ grammar: String, letters: [String] = [], end: Int = -1) {
        var rules = [String: Part]()
        for line in grammar.split(separator: "\n") {
            let sides = line.split(separator: " ::= ", maxSplits: 1)
            var reader = Reader(rest: Array(String(sides[1]).unicodeScalars)[...])
            rules[String(sides[0])] = reader.either()
            precondition(reader.rest.isEmpty, "cannot read \(line)")
        }
        self.rules = rules
        self.letters = letters
        self.end = end
    }

    /// Whether the grammar describes this text.
    package func matches(_ text: String) -> Bool {
        let scalars = Array(text.unicodeScalars)
        var match = Match(text: scalars, rules: rules)
        return match.ends(of: .rule("root"), from: 0).contains(scalars.count)
    }

    /// Whether the grammar describes this text or a text that begins with it.
    package func begins(_ text: String) -> Bool {
        let scalars = Array(text.unicodeScalars)
        var match = Match(text: scalars, rules: rules)
        return match.ends(of: .rule("root"), from: 0).contains(scalars.count) || match.asksForMore
    }

    package func allowed() -> [UInt32]? {
        var words = [UInt32](repeating: 0, count: (letters.count + 31) / 32)
        let text = texts.joined()
        for (token, letter) in letters.enumerated()
        where token == end ? matches(text) : begins(text + letter) {
            words[token / 32] |= 1 << UInt32(token % 32)
        }
        return words
    }

    package func accept(_ token: Int) throws {
        guard begins(texts.joined() + letters[token]) else {
            throw TokenGrammarError.failed("rejected")
        }
        texts.append(letters[token])
    }

    package var count: Int { texts.count }

    package func goBack(to count: Int) { texts.removeLast(texts.count - count) }
}

extension ReferenceGrammar {
    private indirect enum Part {
        case text([Unicode.Scalar])
        case set([ClosedRange<Unicode.Scalar>])
        case rule(String)
        case sequence([Part])
        case either([Part])
        case repeated(Part, least: Int, most: Int)
    }

    private struct Match {
        let text: [Unicode.Scalar]
        let rules: [String: Part]
        /// Whether another character could follow the end of the text.
        var asksForMore = false

        mutating func ends(of part: Part, from start: Int) -> Set<Int> {
            switch part {
            case .text(let wanted):
                var place = start
                for scalar in wanted {
                    guard place < text.count else {
                        asksForMore = true
                        return []
                    }
                    guard text[place] == scalar else { return [] }
                    place += 1
                }
                return [place]
            case .set(let ranges):
                guard start < text.count else {
                    asksForMore = true
                    return []
                }
                return ranges.contains { $0.contains(text[start]) } ? [start + 1] : []
            case .rule(let name):
                guard let rule = rules[name] else { preconditionFailure("no rule \(name)") }
                return ends(of: rule, from: start)
            case .sequence(let parts):
                return parts.reduce(into: [start]) { $0 = all(of: $1, from: $0) }
            case .either(let ways):
                return ways.reduce(into: []) { $0.formUnion(ends(of: $1, from: start)) }
            case .repeated(let part, let least, let most):
                var ends: Set<Int> = least == 0 ? [start] : []
                var places: Set = [start]
                var count = 0
                while count < most, !places.isEmpty {
                    count += 1
                    places = all(of: part, from: places)
                    if count > least { places.subtract(ends) }
                    if count >= least { ends.formUnion(places) }
                }
                return ends
            }
        }

        private mutating func all(of part: Part, from starts: Set<Int>) -> Set<Int> {
            starts.reduce(into: []) { $0.formUnion(ends(of: part, from: $1)) }
        }
    }

    private struct Reader {
        var rest: ArraySlice<Unicode.Scalar>

        mutating func either() -> Part {
            var ways = [sequence()]
            while took("|") { ways.append(sequence()) }
            return ways.count == 1 ? ways[0] : .either(ways)
        }

        private mutating func sequence() -> Part {
            var parts = [Part]()
            while true {
                skipSpace()
                guard let next = rest.first, next != "|", next != ")" else { break }
                parts.append(counted(atom()))
            }
            return parts.count == 1 ? parts[0] : .sequence(parts)
        }

        private mutating func atom() -> Part {
            let next = rest.removeFirst()
            switch next {
            case "(":
                let inner = either()
                precondition(took(")"), "a bracket is open")
                return inner
            case "\"":
                var text = [Unicode.Scalar]()
                while !tookAtOnce("\"") { text.append(scalar()) }
                return .text(text)
            case "[":
                var ranges = [ClosedRange<Unicode.Scalar>]()
                while !tookAtOnce("]") {
                    let first = scalar()
                    ranges.append(first ... (tookAtOnce("-") ? scalar() : first))
                }
                return .set(ranges)
            default:
                var name = String(next)
                while let next = rest.first, next.properties.isAlphabetic || isDigit(next) {
                    name.unicodeScalars.append(rest.removeFirst())
                }
                return .rule(name)
            }
        }

        private mutating func counted(_ part: Part) -> Part {
            if tookAtOnce("*") { return .repeated(part, least: 0, most: .max) }
            if tookAtOnce("+") { return .repeated(part, least: 1, most: .max) }
            if tookAtOnce("?") { return .repeated(part, least: 0, most: 1) }
            guard tookAtOnce("{") else { return part }
            let least = number() ?? 0
            let most = tookAtOnce(",") ? number() ?? .max : least
            precondition(tookAtOnce("}"), "a brace is open")
            return .repeated(part, least: least, most: most)
        }

        private mutating func number() -> Int? {
            var digits = ""
            while let next = rest.first, isDigit(next) {
                digits.unicodeScalars.append(rest.removeFirst())
            }
            return Int(digits)
        }

        private mutating func scalar() -> Unicode.Scalar {
            let next = rest.removeFirst()
            guard next == "\\" else { return next }
            let escaped = rest.removeFirst()
            let counts: [Unicode.Scalar: Int] = ["x": 2, "u": 4, "U": 8]
            guard let count = counts[escaped] else { return escaped }
            let digits = rest.prefix(count).map { String($0) }.joined()
            rest.removeFirst(count)
            return UInt32(digits, radix: 16).flatMap(Unicode.Scalar.init) ?? "?"
        }

        private func isDigit(_ scalar: Unicode.Scalar) -> Bool { ("0" ... "9").contains(scalar) }

        private mutating func took(_ scalar: Unicode.Scalar) -> Bool {
            skipSpace()
            return tookAtOnce(scalar)
        }

        private mutating func tookAtOnce(_ scalar: Unicode.Scalar) -> Bool {
            guard rest.first == scalar else { return false }
            rest.removeFirst()
            return true
        }

        private mutating func skipSpace() { while rest.first == " " { rest.removeFirst() } }
    }
}

/// Whether mlx-swift-lm can make replies follow a schema, which its stand-in cannot.
package let hasGrammarEngine: Bool = {
    let tokenizer = TestTokenizer(.qwen3)
    let stop = tokenizer.stop
    let engine = try? GrammarEngine(tokenizer: tokenizer, endOfTurn: stop) { _, _ in false }
    return engine != nil
}()

extension H2OModel {
    /// This model, which uses a ``ReferenceGrammar`` for schemas if there is no grammar engine.
    package nonisolated func withGrammars(_ template: ChatTemplate) -> H2OModel {
        guard !hasGrammarEngine else { return self }
        let tokenizer = TestTokenizer(template)
        loaded.grammars = SchemaGrammars(tokenizer: tokenizer, endOfTurn: tokenizer.stop) {
            ReferenceGrammar($0, letters: tokenizer.letters, end: tokenizer.stop)
        }
        return self
    }
}
