/// The marks around a model's thoughts.
public struct ThoughtMarks: Hashable, Sendable {
    public let begin: String
    public let end: String
    /// Marks of tool calls with which a thought may end too. They are not part of it.
    public var exits: [String]

    public init(begin: String, end: String, exits: [String] = []) {
        (self.begin, self.end, self.exits) = (begin, end, exits)
    }
}

/// Separates thoughts from the text of a reply. Thoughts come before the answer: in the answer, the
/// marks are text. White space around a thought belongs neither to it nor to the answer. The result
/// does not depend on the pieces in which the text arrives.
struct ThoughtReader {
    private enum Place {
        case beforeAnswer, thought, answer
    }

    private let marks: ThoughtMarks
    private var place: Place
    /// Text whose kind is not certain.
    private var held = ""
    /// Whether white space at the beginning of the held text is left out.
    private var dropsSpace: Bool

    /// - Parameter isThinking: whether the prompt begins a thought
    init(_ marks: ThoughtMarks, isThinking: Bool) {
        self.marks = marks
        place = isThinking ? .thought : .beforeAnswer
        dropsSpace = isThinking
    }

    /// Whether the next text is a thought.
    var isThinking: Bool { place == .thought }

    /// Returns the text and thoughts that are complete with this text.
    mutating func read(_ text: String) -> [ReplyPiece] {
        held += text
        var pieces = [ReplyPiece]()
        while let new = next() { pieces += new }
        return pieces
    }

    /// Returns the text that was held back.
    mutating func finish() -> [ReplyPiece] {
        defer { held = "" }
        if isThinking { return thought(upTo: held.endIndex, isOver: true) }
        if dropsSpace { dropSpace() }
        return held.isEmpty ? [] : [.text(held)]
    }

    private mutating func next() -> [ReplyPiece]? {
        guard !held.isEmpty else { return nil }
        switch place {
        case .answer:
            defer { held = "" }
            return [.text(held)]
        case .beforeAnswer:
            if dropsSpace { dropSpace() }
            guard let start = held.unicodeScalars.firstIndex(where: { !$0.isSpace }) else {
                return nil
            }
            let rest = String(held[start...])
            if rest.begins(withMark: marks.begin) {
                held = String(rest.utf8.dropFirst(marks.begin.utf8.count)) ?? ""
                (place, dropsSpace) = (.thought, true)
                return []
            }
            if marks.begin.begins(withMark: rest) { return nil }
            place = .answer
            return []
        case .thought:
            let ends = ([marks.end] + marks.exits).compactMap { mark in
                held.firstRange(ofMark: mark).map { (range: $0, isEnd: mark == marks.end) }
            }
            if let end = ends.min(by: { $0.range.lowerBound < $1.range.lowerBound }) {
                let next = end.isEnd ? end.range.upperBound : end.range.lowerBound
                let rest = String(held[next...])
                let pieces = thought(upTo: end.range.lowerBound, isOver: true)
                held = rest
                (place, dropsSpace) = (end.isEnd ? .beforeAnswer : .answer, true)
                return pieces
            }
            let unsure = ([marks.end] + marks.exits).map { held.beginning(ofMark: $0) }.min()
            let pieces = thought(upTo: unsure ?? held.endIndex, isOver: false)
            return pieces.isEmpty ? nil : pieces
        }
    }

    /// Takes the held text up to a place as a thought. White space at its end stays held if more of
    /// the thought may follow, and is left out if the thought is over.
    private mutating func thought(upTo end: String.Index, isOver: Bool) -> [ReplyPiece] {
        var text = held[..<end].unicodeScalars
        let rest = held[end...]
        if dropsSpace { text = text.drop { $0.isSpace } }
        let last = text.lastIndex { !$0.isSpace }
        let cut = last.map { text.index(after: $0) } ?? text.startIndex
        let certain = String(text[..<cut])
        held = isOver ? "" : String(text[cut...]) + rest
        guard !certain.isEmpty else { return [] }
        dropsSpace = false
        return [.thought(certain)]
    }

    private mutating func dropSpace() {
        held = String(String.UnicodeScalarView(held.unicodeScalars.drop { $0.isSpace }))
    }
}
