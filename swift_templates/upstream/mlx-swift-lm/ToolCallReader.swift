import Foundation

/// Separates tool calls from the text of a reply, with mlx-swift-lm's parser of the model's format.
///
/// mlx-swift-lm's `ToolCallProcessor` returns only the first call of a block, and returns some
/// calls that it cannot parse as text. This type returns each call, or reports it as malformed.
struct ToolCallReader {
    private let format: ToolCallFormat
    private let parser: any ToolCallParser
    private let tools: [[String: any Sendable]]
    /// The names of the tools.
    private let names: Set<String>
    private let begins: [(mark: String, begin: Begin)]
    /// Text that may be the beginning of a call.
    private var held = ""

    private enum Begin {
        /// The text between the parser's two marks.
        case block
        /// A call after a mark that the format may omit: the rest of the turn, or a JSON object.
        case marked
        /// A list of calls without marks.
        case list
        /// A JSON object without marks, which may also be text.
        case object
    }

    init(_ format: ToolCallFormat, tools: [[String: any Sendable]]) {
        self.format = format
        self.tools = tools
        let parser = format.createParser()
        self.parser = parser
        let names = tools.compactMap { tool in
            (tool["function"] as? [String: any Sendable])?["name"] as? String
        }
        self.names = Set(names)
        let layout = format.layout
        var begins = [(mark: String, begin: Begin)]()
        if let tag = parser.startTag { begins.append((tag, .block)) }
        if let mark = layout.optionalMark { begins.append((mark, .marked)) }
        if layout.isList, parser.startTag == nil { begins += names.map { ("[\($0)(", .list) } }
        if layout.allowsBareJSON { begins.append(("{", .object)) }
        self.begins = begins
    }

    /// Returns the pieces that are complete with this text.
    mutating func read(_ text: String) -> [ReplyPiece] {
        held += text
        var pieces = [ReplyPiece]()
        while let new = next() { pieces += new }
        return pieces
    }

    /// Returns the text that was held back.
    mutating func finish() -> [ReplyPiece] {
        let rest = take(upTo: held.endIndex)
        let begin = begins.first { rest.hasPrefix($0.mark) }
        switch begin?.begin {
        case .block where format.layout.needsEnd: return [.malformedToolCall(rest)]
        case .block: return calls(in: rest)
        case .marked:
            let isWhole = [")", "]"].contains(rest.last { !$0.isWhitespace })
            return isWhole ? calls(in: rest) : [.malformedToolCall(rest)]
        case .list: return [.malformedToolCall(rest)]
        case .object: return [isMeantAsCall(rest) ? .malformedToolCall(rest) : .text(rest)]
        case nil: return rest.isEmpty ? [] : [.text(rest)]
        }
    }

    /// Returns the pieces that are complete at the beginning of the held text; nil if there are
    /// none.
    private mutating func next() -> [ReplyPiece]? {
        let matches = begins.compactMap { begin in
            held.range(of: begin.mark).map { (range: $0, begin: begin.begin) }
        }
        guard let first = matches.min(by: { $0.range.lowerBound < $1.range.lowerBound }) else {
            let unsure = begins.map { beginning(of: $0.mark) }.max() ?? 0
            return text(upTo: held.index(held.endIndex, offsetBy: -unsure))
        }
        if first.range.lowerBound > held.startIndex { return text(upTo: first.range.lowerBound) }
        let content = held[first.range.upperBound...]
        switch first.begin {
        case .block: return end(of: content).map { calls(in: take(upTo: $0)) }
        case .marked:
            guard let start = content.firstIndex(where: { !$0.isWhitespace }),
                content[start] == "{", let end = Brackets.json.end(of: held[start...])
            else { return nil }
            return [piece(take(upTo: end))]
        case .list: return Brackets.python.end(of: held[...]).map { calls(in: take(upTo: $0)) }
        case .object:
            guard let member = content.first(where: { !$0.isWhitespace }) else { return nil }
            guard member == "\"" else { return text(upTo: first.range.upperBound) }
            return Brackets.json.end(of: held[...]).map { object(take(upTo: $0)) }
        }
    }

    /// The end of the block whose content begins the text.
    private func end(of content: Substring) -> String.Index? {
        if let tag = parser.endTag { return content.range(of: tag)?.upperBound }
        let next = parser.startTag.flatMap { content.range(of: $0)?.lowerBound }
        let mark = format.layout.argumentsMark.flatMap { content.range(of: $0)?.upperBound }
        guard let mark, mark <= next ?? mark else { return next }
        let start = content[mark...].firstIndex { !$0.isWhitespace }
        guard let start, content[start] == "{" else { return next }
        return Brackets.json.end(of: content[start...]) ?? next
    }

    /// The pieces for a JSON object without marks.
    private func object(_ text: String) -> [ReplyPiece] {
        if let call = call(text) { return [.toolCall(call)] }
        return [isMeantAsCall(text) ? .malformedToolCall(text) : .text(text)]
    }

    /// The tool calls in a marked text, which contains one call or a list of them.
    private func calls(in text: String) -> [ReplyPiece] {
        let mark = parser.startTag ?? format.layout.optionalMark ?? ""
        let list = text.dropFirst(text.hasPrefix(mark) ? mark.count : 0).drop { $0.isWhitespace }
        if format.layout.isList, list.first == "[" {
            guard let elements = Brackets.python.elements(of: list), elements.count > 1 else {
                return [piece(text)]
            }
            return elements.map(piece)
        }
        guard let mark = format.layout.callMark else { return [piece(text)] }
        let parts = text.components(separatedBy: mark)
        guard parts.count > 2 else { return [piece(text)] }
        let others = parts.dropFirst(2).map { mark + $0 }
        return ([parts[0] + mark + parts[1]] + others).map(piece)
    }

    private func piece(_ text: String) -> ReplyPiece {
        call(text).map(ReplyPiece.toolCall) ?? .malformedToolCall(text)
    }

    /// The call in a text; nil if the text cannot be parsed, or the tool is unknown.
    private func call(_ text: String) -> ToolCall? {
        guard let call = parser.parse(content: text, tools: tools),
            names.contains(call.function.name)
        else { return nil }
        let id = call.id.flatMap { $0.isEmpty ? nil : $0 } ?? format.newCallID
        return ToolCall(function: call.function, id: id)
    }

    /// Whether a JSON object without marks, which may be cut off, has the members of a call.
    private func isMeantAsCall(_ text: String) -> Bool {
        let object = try? JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any]
        guard let object else {
            return text.contains("\"name\"")
                && (text.contains("\"arguments\"") || text.contains("\"parameters\""))
        }
        let call = object["function"] as? [String: Any] ?? object
        return call["name"] is String && (call["arguments"] ?? call["parameters"]) != nil
    }

    private mutating func text(upTo end: String.Index) -> [ReplyPiece]? {
        let text = take(upTo: end)
        return text.isEmpty ? nil : [.text(text)]
    }

    private mutating func take(upTo end: String.Index) -> String {
        let text = String(held[..<end])
        held = String(held[end...])
        return text
    }

    /// The number of characters at the end of the held text that may be the first characters of the
    /// mark.
    private func beginning(of mark: String) -> Int {
        (1 ..< max(1, mark.count)).last { held.hasSuffix(mark.prefix($0)) } ?? 0
    }
}

extension ToolCallFormat {
    /// A new identifier in the form that chat templates of the format expect.
    public var newCallID: String { generateToolCallID() }
}
