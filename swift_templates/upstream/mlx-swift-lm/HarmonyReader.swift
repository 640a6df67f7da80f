import Foundation

/// Separates thoughts, tool calls and text of a reply in the format Harmony of gpt-oss.
///
/// Such a reply is a series of frames: a header with channel and recipient, `<|message|>`, a text, and
/// the token that ends it. mlx-swift-lm's reader of this format repeats characters that take several
/// tokens, so this type gives each frame's tokens to a ``TokenText`` instead.
struct HarmonyReader {
    private struct Marks {
        let start, channel, message, end, call, endOfReply, constrain: Int
    }

    private enum Frame {
        case thought, text
        /// A call of this recipient.
        case call(String)
        /// Of a channel that nobody reads.
        case unknown
    }

    private enum Place {
        case between
        case header([Int])
        case body(Frame)
    }

    private let marks: Marks
    private let tokenizer: any Tokenizer
    /// The names of the tools.
    private let names: Set<String>
    /// Turns the tokens of one frame into text.
    private let emptyText: any TokenText
    private var text: any TokenText
    private var place = Place.between
    /// The arguments so far of a call.
    private var written = ""

    /// Returns nil if the tokenizer lacks the marks.
    init?(tokenizer: any Tokenizer, tools: [[String: any Sendable]], text: any TokenText) {
        let names = [
            "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>",
            "<|constrain|>",
        ]
        let ids = names.compactMap(tokenizer.convertTokenToId)
        guard Set(ids).count == names.count else { return nil }
        marks = Marks(
            start: ids[0], channel: ids[1], message: ids[2], end: ids[3], call: ids[4],
            endOfReply: ids[5], constrain: ids[6])
        self.tokenizer = tokenizer
        self.names = Set(
            tools.compactMap { ($0["function"] as? [String: any Sendable])?["name"] as? String })
        (self.text, emptyText) = (text, text)
    }

    /// Tokens that end a reply.
    var stops: Set<Int> { [marks.call, marks.endOfReply] }

    var isThinking: Bool {
        if case .body(.thought) = place { true } else { false }
    }

    /// Returns the pieces that are complete with this token.
    mutating func append(_ token: Int) -> [ReplyPiece] {
        switch token {
        case marks.start, marks.channel:
            if case .header(let tokens) = place {
                place = .header(tokens + [token])
                return []
            }
            let pieces = close(isWhole: false)
            place = .header([token])
            return pieces
        case marks.message:
            guard case .header(let tokens) = place else { return close(isWhole: false) }
            place = .body(frame(tokens))
            return []
        case marks.end, marks.call, marks.endOfReply:
            return close(isWhole: token == marks.call)
        default:
            switch place {
            case .header(let tokens):
                place = .header(tokens + [token])
                return []
            case .between:
                guard token != marks.constrain else { return [] }
                // A model that writes no header writes an answer.
                place = .body(.text)
                return pieces(text.append(token))
            case .body:
                return pieces(text.append(token))
            }
        }
    }

    /// Returns the text that was held back.
    mutating func finish() -> [ReplyPiece] { close(isWhole: false) }

    /// Ends a frame.
    ///
    /// - Parameter isWhole: whether a call is complete
    private mutating func close(isWhole: Bool) -> [ReplyPiece] {
        defer { (place, text, written) = (.between, emptyText, "") }
        guard case .body(let frame) = place else { return [] }
        var result = pieces(text.finish())
        if case .call(let recipient) = frame { result.append(call(of: recipient, isWhole)) }
        return result
    }

    private mutating func pieces(_ new: String) -> [ReplyPiece] {
        guard case .body(let frame) = place, !new.isEmpty else { return [] }
        switch frame {
        case .thought: return [.thought(new)]
        case .text: return [.text(new)]
        case .call: written += new
        case .unknown: break
        }
        return []
    }

    private func call(of recipient: String, _ isWhole: Bool) -> ReplyPiece {
        let prefix = "functions."
        let isFunction = recipient.hasPrefix(prefix)
        let name = isFunction ? String(recipient.dropFirst(prefix.count)) : recipient
        let data = Data(written.utf8)
        let arguments = try? JSONDecoder().decode([String: JSONValue].self, from: data)
        guard isWhole, names.contains(name), let arguments else {
            return .malformedToolCall(written)
        }
        let function = ToolCall.Function(name: name, arguments: arguments)
        return .toolCall(ToolCall(function: function, id: ToolCallFormat.gptOSS.newCallID))
    }

    private func frame(_ header: [Int]) -> Frame {
        let text = tokenizer.decode(tokenIds: header, skipSpecialTokens: false)
        let channel = text.components(separatedBy: "<|channel|>").last ?? ""
        let fields = text.split { $0.isWhitespace || $0 == "<" || $0 == ">" }
        let recipient = fields.first { $0.hasPrefix("to=") }.map { String($0.dropFirst(3)) }
        switch channel.prefix(while: { $0.isLetter }) {
        case "analysis": return .thought
        case "final": return .text
        case "commentary": return recipient.map { .call($0) } ?? .text
        default: return .unknown
        }
    }
}
