import Foundation
import H2OKit
import MLXLMCommon

/// Checks that a transcript can be continued.
enum Transcript {
    /// - Throws: ``H2OSessionError/emptyPrompt``, ``H2OSessionError/duplicateTool(_:)``, or
    ///   ``H2OSessionError/contradictoryTranscript(reason:)`` if no conversation can have these
    ///   messages
    static func check(_ messages: [H2OMessage], _ tools: [H2OToolDefinition]) throws {
        var names = Set<String>()
        for tool in tools where !names.insert(tool.name).inserted {
            throw H2OSessionError.duplicateTool(tool.name)
        }
        guard let last = messages.last else { throw H2OSessionError.emptyPrompt }
        if last.role == .user, last.text.isEmpty { throw H2OSessionError.emptyPrompt }
        if let reason = contradiction(in: messages) {
            throw H2OSessionError.contradictoryTranscript(reason: reason)
        }
    }

    /// Describes why no conversation can have these messages; nil if one can.
    private static func contradiction(in messages: [H2OMessage]) -> String? {
        if let last = messages.last, last.role != .user, last.role != .tool {
            return "its last message has the role \(last.role.rawValue), but the model replies "
                + "only to a user's message or a tool's answer. Add one, or remove the last message."
        }
        var pending = [String]()
        var used = Set<String>()
        func unanswered(before index: Int) -> String? {
            pending.first.map {
                "the tool call \"\($0)\" has no answer before message \(index). Add the answer, or "
                    + "remove the call."
            }
        }
        for (index, message) in messages.enumerated() {
            switch message.role {
            case .system where index > 0:
                return "message \(index) has the role system, which only the first message may "
                    + "have. Move it to the beginning, or give it another role."
            case .tool:
                let id = message.toolCallID ?? ""
                guard message.toolCallID != nil, let call = pending.firstIndex(of: id) else {
                    return "message \(index) answers the tool call \"\(id)\", which has an answer "
                        + "already or is not a call of the reply before it. Add one answer per call, "
                        + "directly after the reply with the call."
                }
                pending.remove(at: call)
            case .system, .user, .assistant:
                if let reason = unanswered(before: index) { return reason }
                pending = message.toolCalls.map(\.id)
                for id in pending where !used.insert(id).inserted {
                    return "message \(index) has a tool call with the identifier \"\(id)\", "
                        + "which an earlier call has too. Give each call its own identifier."
                }
            }
        }
        return unanswered(before: messages.count)
    }
}

/// A transcript that a model continues, and how.
struct ConversationRequest {
    let transcript: [H2OMessage]
    /// The options with the schema and the limit of tokens of this reply.
    let options: H2OSession.Options
    let format: PromptFormat
    /// The digests of the transcript.
    let chain: TranscriptChain
    /// The number of tokens at the end of the prompt that only begin the reply, if its thoughts will
    /// be removed from the caches; otherwise 0. These tokens are read one by one.
    let begin: Int
    /// The time of the request.
    let begun: Duration

    /// The digests of the transcript with the reply to it, or with the reply that it continues.
    func chain(with reply: H2OMessage) -> TranscriptChain {
        var chain = chain
        chain.append(reply.compared)
        return chain
    }

    func chain(with response: H2OSession.Response<String>) -> TranscriptChain {
        chain(with: response.message(after: options.beginning))
    }

    /// Whether the model has said anything since the user's message.
    func hasAnswer(with response: H2OSession.Response<String>) -> Bool {
        let message = response.message(after: options.beginning)
        return transcript.last?.role == .tool || !message.text.isEmpty || message.thoughts != nil
            || !message.toolCalls.isEmpty
    }

    /// Whether the prompt begins a thought.
    var opensThought: Bool { get throws { try format.opensThought(after: transcript) } }
}

extension LoadedModel {
    /// Checks the device, and checks and prepares a request.
    ///
    /// - Throws: ``H2OSessionError``, or the chat template's own error
    func request(
        _ transcript: [H2OMessage], _ tools: [H2OToolDefinition], _ options: H2OSession.Options
    ) throws -> ConversationRequest {
        if platform.conditions.isTooHot { throw H2OSessionError.tooHot }
        if options.refusesInLowPowerMode, platform.conditions.isLowPower() {
            throw H2OSessionError.lowPowerMode
        }
        try Transcript.check(transcript, tools)
        try checkTemplate(transcript, tools)
        try options.sampling.check()
        let options = try options.resolved(for: transcript, tools)
        let begun = platform.elapsed()
        let format = format(tools: tools, options: options)
        return ConversationRequest(
            transcript: transcript, options: options, format: format,
            chain: try format.chain(of: transcript), begin: try begin(of: format, options),
            begun: begun)
    }

    private func begin(of format: PromptFormat, _ options: H2OSession.Options) throws -> Int {
        guard options.schema == nil, options.thinking != false, chat.thinking != nil,
            chat.dropsThoughts
        else { return 0 }
        return try format.replyBegin()
    }
}

extension LoadedModel {
    /// Checks that the chat template writes the system prompt and the tools.
    ///
    /// - Throws: ``H2OSessionError/noTools(model:)``, ``H2OSessionError/noSystemPrompt(model:)``
    func checkTemplate(_ transcript: [H2OMessage], _ tools: [H2OToolDefinition]) throws {
        let name = manifest?.model ?? "the model"
        guard tools.isEmpty || chat.template && chat.tools else {
            throw H2OSessionError.noTools(model: name)
        }
        let hasSystem = transcript.first?.role == .system && transcript.first?.text.isEmpty == false
        guard !hasSystem || !chat.template || chat.system else {
            throw H2OSessionError.noSystemPrompt(model: name)
        }
    }
}

/// Digests of all beginnings of a transcript, so that two transcripts are compared without
/// their texts.
package struct TranscriptChain: Hashable, Sendable {
    /// The beginning of a transcript.
    package struct Head: Codable, Hashable, Sendable {
        /// The number of messages.
        package let count: Int
        /// The digest of the messages, and of everything on which all messages depend, in
        /// hexadecimal.
        package let digest: String
    }

    /// Element n is the beginning with n messages.
    package private(set) var heads: [Head]

    /// - Parameters:
    ///   - opening: everything on which all messages depend: instructions, tools, the template's
    ///     context
    ///   - messages: in order
    package init(opening: some Encodable, messages: [some Encodable] = [String]()) {
        heads = [Head(count: 0, digest: Self.digest("", opening))]
        for message in messages { append(message) }
    }

    package mutating func append(_ message: some Encodable) {
        heads.append(Head(count: heads.count, digest: Self.digest(head.digest, message)))
    }

    /// The whole transcript.
    package var head: Head { heads[heads.count - 1] }

    /// The transcript without its last message.
    var beforeLast: TranscriptChain {
        var chain = self
        if chain.heads.count > 1 { chain.heads.removeLast() }
        return chain
    }

    package func starts(with other: Head) -> Bool {
        heads.indices.contains(other.count) && heads[other.count] == other
    }

    private static func digest(_ before: String, _ next: some Encodable) -> String {
        FileDigest.sha256(of: Data((before + json(next)).utf8))
    }
}

extension PromptFormat {
    /// The values on which the tokens of all messages depend.
    private struct Surroundings: Encodable {
        let tools: [H2OToolDefinition]
        let variables: [String: JSONValue]
        /// The tokens before the first message that is not a system message.
        let opening: [Int]
    }

    /// The digests by which a transcript is recognized. The option for thoughts changes them only if
    /// it changes the opening; in most templates it changes only the next reply.
    ///
    /// - Throws: the template's own error
    func chain(of transcript: [H2OMessage]) throws -> TranscriptChain {
        let system = Array(transcript.prefix { $0.role == .system })
        let opening = try tokensBeforeUser(after: system) ?? []
        return TranscriptChain(
            opening: Surroundings(tools: tools, variables: variables, opening: opening),
            messages: transcript.map(\.compared))
    }
}
