import AnyLanguageModel
import Foundation
import H2OSessions

import enum MLXLMCommon.JSONValue

/// A model in bounded memory for AnyLanguageModel's sessions. Each session has a conversation,
/// whose caches are kept between requests.
final class BoundedLanguageModel: LanguageModel {
    typealias UnavailableReason = Never

    private let conversations: Conversations

    init(_ model: H2OModel) {
        conversations = Conversations(model)
    }

    func prewarm(for session: LanguageModelSession, promptPrefix: Prompt?) {
        Task { try? await conversations.conversation(of: session, isAsked: false).prewarm() }
    }

    func respond<Content: Generable>(
        within session: LanguageModelSession, to prompt: Prompt, generating type: Content.Type,
        includeSchemaInPrompt: Bool, options: GenerationOptions
    ) async throws -> LanguageModelSession.Response<Content> {
        let conversation = try await conversations.conversation(of: session)
        let response = try await conversation.respond(
            to: prompt.description, options: H2OSession.Options(options, generating: type))
        let raw = try GeneratedContent(of: type, text: response.content)
        return LanguageModelSession.Response(
            content: try Content(raw), rawContent: raw, transcriptEntries: [])
    }

    func streamResponse<Content: Generable>(
        within session: LanguageModelSession, to prompt: Prompt, generating type: Content.Type,
        includeSchemaInPrompt: Bool, options: GenerationOptions
    ) -> sending LanguageModelSession.ResponseStream<Content> {
        let (stream, sink) = AsyncThrowingStream<Snapshot<Content>, any Error>.makeStream()
        let task = Task { await send(to: sink, session, prompt, options) }
        sink.onTermination = { _ in task.cancel() }
        return LanguageModelSession.ResponseStream(stream: stream)
    }

    private typealias Snapshot<Content: Generable> =
        LanguageModelSession.ResponseStream<Content>.Snapshot

    private func send<Content: Generable>(
        to sink: AsyncThrowingStream<Snapshot<Content>, any Error>.Continuation,
        _ session: LanguageModelSession, _ prompt: Prompt, _ options: GenerationOptions
    ) async {
        do {
            let conversation = try await conversations.conversation(of: session)
            let options = try H2OSession.Options(options, generating: Content.self)
            var text = ""
            for try await part in conversation.streamResponse(
                to: prompt.description, options: options)
            {
                guard case .text(let new) = part else { continue }
                text += new
                // A part of an instance may not be a valid instance yet.
                let raw: GeneratedContent? = try? .init(of: Content.self, text: text)
                let content: Content.PartiallyGenerated? = try? raw.map { try .init($0) }
                guard let raw, let content else { continue }
                sink.yield(Snapshot<Content>(content: content, rawContent: raw))
            }
            sink.finish()
        } catch {
            sink.finish(throwing: error)
        }
    }
}

/// The conversation of each session, as long as the session exists.
private actor Conversations {
    private struct Entry {
        weak var session: LanguageModelSession?
        let conversation: H2OSession
    }

    private let model: H2OModel
    private var entries = [ObjectIdentifier: Entry]()

    init(_ model: H2OModel) {
        self.model = model
    }

    /// - Parameter isAsked: whether the transcript ends with the prompt that is asked now
    func conversation(
        of session: LanguageModelSession, isAsked: Bool = true
    ) async throws -> H2OSession {
        entries = entries.filter { $0.value.session != nil }
        if let entry = entries[ObjectIdentifier(session)] { return entry.conversation }
        let conversation = model.makeSession(tools: try session.tools.map { try H2OTool($0) })
        entries[ObjectIdentifier(session)] = Entry(session: session, conversation: conversation)
        let known = isAsked ? session.transcript.dropLast() : session.transcript[...]
        try await conversation.setTranscript(known.compactMap(H2OMessage.init))
        return conversation
    }
}

extension H2OMessage {
    /// Leaves out the tool calls of an earlier session and their outputs.
    fileprivate init?(_ entry: Transcript.Entry) {
        switch entry {
        case .instructions(let entry): self = .system(entry.segments.text)
        case .prompt(let entry): self = .user(entry.segments.text)
        case .response(let entry): self = .assistant(entry.segments.text)
        default: return nil
        }
    }
}

extension [Transcript.Segment] {
    fileprivate var text: String {
        compactMap { segment in
            switch segment {
            case .text(let text): text.content
            case .structure(let structure): structure.content.jsonString
            default: nil
            }
        }.joined(separator: "\n")
    }
}

extension H2OSession.Options {
    fileprivate init(_ options: GenerationOptions, generating type: any Generable.Type) throws {
        let sampling = H2OSampling(temperature: options.temperature.map(Float.init))
        self.init(
            sampling: options.sampling == .greedy ? .greedy : sampling,
            maxTokens: options.maximumResponseTokens)
        if type != String.self {
            let schema = try JSONEncoder().encode(type.generationSchema)
            self.schema = try H2OSchema(String(decoding: schema, as: UTF8.self))
        }
    }
}

extension GeneratedContent {
    fileprivate init(of type: any Generable.Type, text: String) throws {
        self = try type == String.self ? GeneratedContent(text) : GeneratedContent(json: text)
    }
}

extension H2OTool {
    fileprivate init<T: Tool>(_ tool: T) throws {
        let encoded = try JSONEncoder().encode(tool.parameters)
        var parameters = try JSONDecoder().decode(JSONValue.self, from: encoded)
        // A schema that begins with a reference to one of its definitions is that definition.
        if case .object(let root) = parameters, case .string(let place)? = root["$ref"],
            case .object(let all)? = root["$defs"],
            case .object(var own)? = all[String(place.dropFirst("#/$defs/".count))]
        {
            own["$defs"] = .object(all)
            parameters = .object(own)
        }
        try self.init(
            name: tool.name, description: tool.description, parameters: parameters
        ) { arguments in
            let json = String(decoding: try JSONEncoder().encode(arguments), as: UTF8.self)
            let output = try await tool.call(arguments: T.Arguments(GeneratedContent(json: json)))
            return output.promptRepresentation.description
        }
    }
}
