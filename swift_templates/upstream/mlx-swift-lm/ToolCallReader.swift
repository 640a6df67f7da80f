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
    /// The call with which the held text begins; nil if it begins with text.
    private var open: Open?

    private struct Open {
        let begin: Begin
        /// The number of bytes before the call's content.
        let mark: Int
        /// The number of bytes of the held text in which the call does not end.
        var searched = 0
        var brackets = Brackets.Progress()
    }

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

    /// The mark with which a block of calls begins; nil if calls have no marks.
    var beginOfBlock: String? { parser.startTag }

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
        let begin = begins.first { rest.begins(withMark: $0.mark) }
        switch begin?.begin {
        case .block where format.layout.needsEnd: return [.malformedToolCall(rest)]
        case .block: return calls(in: rest)
        case .marked:
            let isWhole = [")", "]"].contains(rest.unicodeScalars.last { !$0.isSpace })
            return isWhole ? calls(in: rest) : [.malformedToolCall(rest)]
        case .list: return [.malformedToolCall(rest)]
        case .object: return [isMeantAsCall(rest) ? .malformedToolCall(rest) : .text(rest)]
        case nil: return rest.isEmpty ? [] : [.text(rest)]
        }
    }

    /// Returns the pieces that are complete at the beginning of the held text; nil if there are
    /// none.
    private mutating func next() -> [ReplyPiece]? {
        if open != nil { return endOfCall() }
        let matches = begins.compactMap { begin in
            held.firstRange(ofMark: begin.mark).map { (range: $0, begin: begin) }
        }
        guard let first = matches.min(by: { $0.range.lowerBound < $1.range.lowerBound }) else {
            return text(upTo: begins.map { held.beginning(ofMark: $0.mark) }.min() ?? held.endIndex)
        }
        if first.range.lowerBound > held.startIndex { return text(upTo: first.range.lowerBound) }
        open = Open(begin: first.begin.begin, mark: first.begin.mark.utf8.count)
        return endOfCall()
    }

    /// Returns the pieces of the call with which the held text begins; nil if it is incomplete.
    private mutating func endOfCall() -> [ReplyPiece]? {
        guard var call = open else { return nil }
        defer { if open != nil { open = call } }
        let content = held[held.utf8.index(held.startIndex, offsetBy: call.mark)...]
        switch call.begin {
        case .block: return end(of: content, &call).map { calls(in: take(upTo: $0)) }
        case .marked:
            guard let start = content.firstText, content.utf8[start] == UInt8(ascii: "{"),
                let end = Brackets.json.end(of: held[start...], &call.brackets)
            else { return nil }
            return [piece(take(upTo: end))]
        case .list:
            return Brackets.python.end(of: held[...], &call.brackets)
                .map { calls(in: take(upTo: $0)) }
        case .object:
            guard let member = content.firstText else { return nil }
            guard content.utf8[member] == UInt8(ascii: "\"") else {
                return text(upTo: content.startIndex)
            }
            return Brackets.json.end(of: held[...], &call.brackets).map { object(take(upTo: $0)) }
        }
    }

    /// The end of the block whose content is the text.
    private func end(of content: Substring, _ call: inout Open) -> String.Index? {
        if let tag = parser.endTag {
            let bytes = content.utf8
            let start = bytes.index(bytes.startIndex, offsetBy: call.searched)
            if let range = content[start...].firstRange(ofMark: tag) { return range.upperBound }
            call.searched = max(0, bytes.count - tag.utf8.count + 1)
            return nil
        }
        let next = parser.startTag.flatMap { content.firstRange(ofMark: $0)?.lowerBound }
        let mark = format.layout.argumentsMark.flatMap {
            content.firstRange(ofMark: $0)?.upperBound
        }
        guard let mark, mark <= next ?? mark else { return next }
        guard let start = content[mark...].firstText, content.utf8[start] == UInt8(ascii: "{")
        else { return next }
        return Brackets.json.end(of: content[start...], &call.brackets) ?? next
    }

    /// The pieces for a JSON object without marks.
    private func object(_ text: String) -> [ReplyPiece] {
        if let call = call(text) { return [.toolCall(call)] }
        return [isMeantAsCall(text) ? .malformedToolCall(text) : .text(text)]
    }

    /// The tool calls in a marked text, which contains one call or a list of them.
    private func calls(in text: String) -> [ReplyPiece] {
        let mark = parser.startTag ?? format.layout.optionalMark ?? ""
        let start = text.begins(withMark: mark) ? mark.utf8.count : 0
        let content = text[text.utf8.index(text.startIndex, offsetBy: start)...]
        let list = content[(content.firstText ?? content.endIndex)...]
        if format.layout.isList, list.utf8.first == UInt8(ascii: "[") {
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
        open = nil
        return text
    }
}

extension Unicode.Scalar {
    /// Whether this is white space.
    var isSpace: Bool { properties.isWhitespace }
}

extension Substring {
    /// The place of the first scalar that is not white space.
    fileprivate var firstText: String.Index? { unicodeScalars.firstIndex { !$0.isSpace } }
}

extension ToolCallFormat {
    /// A new identifier in the form that chat templates of the format expect.
    public var newCallID: String { generateToolCallID() }
}
