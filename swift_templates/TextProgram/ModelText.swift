import Foundation
import MLXLMCommon

/// A model's tokenizer and chat template, as the app loads them.
final class ModelText {
    private let folder: URL
    private let stops: Set<Int>
    private var loaded: BundledTokenizer?

    init(folder: URL, stops: Set<Int>) {
        self.folder = folder
        self.stops = stops
    }

    /// The tokenizer, loaded when an item first needs it.
    ///
    /// - Throws: an error of the tokenizer's library
    func tokenizer() async throws -> BundledTokenizer {
        if let loaded { return loaded }
        let made = try await BundledTokenizerLoader().load(from: folder)
        guard let tokenizer = made as? BundledTokenizer else { throw ItemError.otherTokenizer }
        loaded = tokenizer
        return tokenizer
    }

    /// The text of a reply whose tokens arrive one by one.
    func streamed(_ ids: [Int], plain: Bool) async throws -> String {
        var reply = ReplyText(
            after: [], tokenizer: try await tokenizer(), skipsSpecialTokens: plain)
        let pieces = ids.map { reply.append($0) }
        return pieces.joined() + reply.finish()
    }

    /// The ids that a session reads in each turn, if each reply ended with the stop token that the
    /// template writes; without one, if it was cut off.
    ///
    /// - Parameter turns: a turn but the first begins with the reply to the one before
    /// - Throws: the template's own error
    func turns(
        _ conversation: Item.Conversation, _ turns: [[H2OMessage]]
    ) async throws -> [Answer.Turn] {
        let format = PromptFormat(
            tokenizer: try await tokenizer(), stops: stops,
            tools: try conversation.tools.map(H2OToolDefinition.init(specification:)),
            variables: conversation.variables)
        var transcript = [H2OMessage]()
        var answers = [Answer.Turn]()
        for messages in turns {
            // The caches have read the reply, with which a later turn begins.
            let read = answers.isEmpty ? 0 : transcript.count + 1
            transcript += messages
            if answers.isEmpty {
                let opening = try format.opening(transcript)
                answers.append(Answer.Turn(ids: opening.tokens, replaced: 0))
            } else {
                let whole = try format.following(read, of: transcript, stop: nil)
                let stop = whole.tokens.first.flatMap { stops.contains($0) ? $0 : nil }
                let next = try format.following(read, of: transcript, stop: stop)
                answers.append(Answer.Turn(ids: next.tokens, replaced: next.replaced))
            }
        }
        return answers
    }
}

extension H2OToolDefinition {
    /// - Parameter specification: in the form that chat templates read
    fileprivate init(specification: JSONValue) throws {
        guard case .object(let tool) = specification,
            case .object(let function)? = tool["function"],
            case .string(let name)? = function["name"]
        else { throw ItemError.notATool }
        var description = ""
        if case .string(let text)? = function["description"] { description = text }
        let parameters = function["parameters"] ?? .object(["type": .string("object")])
        self.init(name: name, description: description, schema: parameters)
    }
}

enum ItemError: LocalizedError {
    case notATool
    case otherTokenizer

    var errorDescription: String? {
        switch self {
        case .notATool: "a tool has no name"
        case .otherTokenizer: "the app's loader gives another tokenizer"
        }
    }
}
