import Foundation
import Synchronization

/// A conversation. It keeps the transcript, calls the model's executor, and runs tools until the
/// model calls no more tools.
public final class LanguageModelSession: Sendable {
    private let model: any LanguageModel
    private let tools: [any Tool]
    private let executor: BoundExecutor
    private let history: Mutex<Transcript>

    public convenience init<Model: LanguageModel>(
        model: Model, tools: [any Tool] = [], instructions: String? = nil
    ) {
        let definitions = tools.map(\.definition)
        let first = Transcript.Instructions(
            segments: instructions.map { [.text($0)] } ?? [],
            toolDefinitions: definitions)
        let isNeeded = instructions != nil || !tools.isEmpty
        self.init(
            model: model, tools: tools,
            transcript: Transcript(entries: isNeeded ? [.instructions(first)] : []))
    }

    public init<Model: LanguageModel>(
        model: Model, tools: [any Tool] = [], transcript: Transcript
    ) {
        self.model = model
        self.tools = tools
        executor = BoundExecutor(of: model)
        history = Mutex(transcript)
    }

    public var transcript: Transcript { history.withLock { $0 } }

    public func prewarm() { executor.prewarm(transcript) }

    @discardableResult
    public nonisolated(nonsending) func respond(
        to prompt: String, options: GenerationOptions = GenerationOptions(),
        contextOptions: ContextOptions = ContextOptions()
    ) async throws -> Response<String> {
        let entry = Transcript.Prompt(
            segments: [.text(prompt)], options: options, contextOptions: contextOptions)
        let reply = try await reply(to: entry, schema: nil) { _ in }
        return Response(content: reply.text, reply)
    }

    @discardableResult
    public nonisolated(nonsending) func respond<Content: Generable>(
        to prompt: String, generating type: Content.Type = Content.self,
        options: GenerationOptions = GenerationOptions(),
        contextOptions: ContextOptions = ContextOptions(includeSchemaInPrompt: true)
    ) async throws -> Response<Content> {
        let schema = Content.generationSchema
        let entry = Transcript.Prompt(
            segments: [.text(prompt)], options: options,
            responseFormat: Transcript.ResponseFormat(schema: schema),
            contextOptions: contextOptions)
        let reply = try await reply(to: entry, schema: schema) { _ in }
        return Response(content: try Content(GeneratedContent(json: reply.text)), reply)
    }

    /// Streams a response as snapshots, each with the whole text so far.
    public func streamResponse(
        to prompt: String, options: GenerationOptions = GenerationOptions(),
        contextOptions: ContextOptions = ContextOptions()
    ) -> ResponseStream {
        let entry = Transcript.Prompt(
            segments: [.text(prompt)], options: options, contextOptions: contextOptions)
        let (snapshots, parts) = AsyncThrowingStream<ResponseStream.Snapshot, any Error>
            .makeStream()
        let task = Task {
            do {
                _ = try await reply(to: entry, schema: nil) { text in
                    parts.yield(ResponseStream.Snapshot(content: text))
                }
                parts.finish()
            } catch {
                parts.finish(throwing: error)
            }
        }
        parts.onTermination = { _ in task.cancel() }
        return ResponseStream(snapshots: snapshots)
    }

    private nonisolated(nonsending) func reply(
        to prompt: Transcript.Prompt, schema: GenerationSchema?,
        onText: @escaping @Sendable (String) -> Void
    ) async throws -> Reply {
        try model.capabilities.check(prompt, schema: schema, tools: !tools.isEmpty)
        var reply = Reply(entries: [.prompt(prompt)])
        let before = transcript
        while true {
            let request = LanguageModelExecutorGenerationRequest(
                id: .init(), transcript: Transcript(entries: before.entries + reply.entries),
                enabledTools: tools.map(\.definition), schema: schema,
                generationOptions: prompt.options, contextOptions: prompt.contextOptions,
                metadata: [:])
            let round = try await executor.respond(to: request, onText: onText)
            reply.add(round, schema: schema)
            guard let calls = round.calls else { break }
            for call in calls {
                reply.entries.append(.toolOutput(try await output(of: call)))
            }
        }
        let after = before.entries + reply.entries
        history.withLock { $0.entries = after }
        return reply
    }

    private nonisolated(nonsending) func output(
        of call: Transcript.ToolCall
    ) async throws -> Transcript.ToolOutput {
        guard let tool = tools.first(where: { $0.name == call.toolName }) else {
            throw UnknownTool(name: call.toolName)
        }
        let output = try await tool.answer(call.arguments)
        return Transcript.ToolOutput(
            id: call.id, toolName: call.toolName, segments: [.text(output)])
    }
}

struct UnknownTool: Error {
    let name: String
}

extension LanguageModelCapabilities {
    /// Checks that the model has the capabilities that the request needs.
    ///
    /// - Throws: `LanguageModelError.unsupportedCapability`
    fileprivate func check(
        _ prompt: Transcript.Prompt, schema: GenerationSchema?, tools: Bool
    ) throws {
        let needs: [(Capability, Bool)] = [
            (.toolCalling, tools), (.guidedGeneration, schema != nil),
            (.reasoning, prompt.contextOptions.reasoningLevel != nil),
        ]
        for (capability, isNeeded) in needs where isNeeded && !contains(capability) {
            throw LanguageModelError.unsupportedCapability(
                .init(capability: capability, debugDescription: "\(capability)"))
        }
    }
}

extension Tool {
    fileprivate var definition: Transcript.ToolDefinition {
        Transcript.ToolDefinition(name: name, description: description, parameters: parameters)
    }

    fileprivate nonisolated(nonsending) func answer(
        _ arguments: GeneratedContent
    ) async throws -> String {
        try await call(arguments: Arguments(arguments))
    }
}

extension LanguageModelSession {
    public struct Response<Content> {
        public let content: Content
        public let usage: Usage

        init(content: Content, _ reply: Reply) {
            self.content = content
            usage = reply.usage
        }
    }

    /// The tokens of all rounds of a response together. Apple's framework declares another type with
    /// the same members.
    public typealias Usage = LanguageModelExecutorGenerationChannel.Usage

    public struct ResponseStream: AsyncSequence {
        let snapshots: AsyncThrowingStream<Snapshot, any Error>

        public struct Snapshot: Sendable {
            public var content: String
        }

        public func makeAsyncIterator() -> AsyncThrowingStream<Snapshot, any Error>.Iterator {
            snapshots.makeAsyncIterator()
        }
    }

    /// A response that is collected from rounds.
    struct Reply {
        var entries: [Transcript.Entry]
        var text = ""
        var usage = Usage(
            input: .init(totalTokenCount: 0, cachedTokenCount: 0),
            output: .init(totalTokenCount: 0, reasoningTokenCount: 0))

        mutating func add(_ round: Round, schema: GenerationSchema?) {
            entries += round.entries(schema: schema)
            text = round.text
            guard let used = round.usage else { return }
            usage.input.totalTokenCount += used.input.totalTokenCount
            usage.input.cachedTokenCount += used.input.cachedTokenCount
            usage.output.totalTokenCount += used.output.totalTokenCount
            usage.output.reasoningTokenCount += used.output.reasoningTokenCount
        }
    }
}

/// A tool that a model may call. Apple's tools may return other types than text.
public protocol Tool: Sendable {
    associatedtype Arguments: ConvertibleFromGeneratedContent

    var name: String { get }
    var description: String { get }
    var parameters: GenerationSchema { get }

    func call(arguments: Arguments) async throws -> String
}

/// An executor with its model.
struct BoundExecutor: Sendable {
    private let run:
        @Sendable (
            LanguageModelExecutorGenerationRequest, LanguageModelExecutorGenerationChannel
        ) async throws -> Void
    let prewarm: @Sendable (Transcript) -> Void

    init<Model: LanguageModel>(of model: Model) {
        let executor = Result {
            try Model.Executor(configuration: model.executorConfiguration)
        }
        run = { request, channel in
            try await executor.get().respond(to: request, model: model, streamingInto: channel)
        }
        prewarm = { transcript in
            try? executor.get().prewarm(model: model, transcript: transcript)
        }
    }

    nonisolated(nonsending) func respond(
        to request: LanguageModelExecutorGenerationRequest,
        onText: @escaping @Sendable (String) -> Void
    ) async throws -> Round {
        let channel = LanguageModelExecutorGenerationChannel()
        let run = run
        return try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                defer { channel.finish() }
                try await run(request, channel)
            }
            var round = Round()
            for await event in channel {
                round.add(event)
                if !round.text.isEmpty { onText(round.text) }
            }
            try await group.waitForAll()
            return round
        }
    }
}

/// The parts that an executor sent for one request, collected by the ids of their entries.
struct Round: Sendable {
    private(set) var usage: LanguageModelExecutorGenerationChannel.Usage?
    /// The parts in the order in which they began.
    private var parts = [Part]()

    private enum Kind: Sendable {
        case response, reasoning, calls
    }

    private struct Part: Sendable {
        let id: String
        let kind: Kind
        var text = ""
        var calls = [Transcript.ToolCall]()
    }

    /// The text of the round's response.
    var text: String { parts.first { $0.kind == .response }?.text ?? "" }

    var calls: [Transcript.ToolCall]? { parts.first { $0.kind == .calls }?.calls }

    mutating func add(_ event: LanguageModelExecutorGenerationChannel.Event) {
        switch event.content {
        case .response(let action):
            switch action.kind {
            case .updateUsage(let usage): self.usage = usage
            case .appendText(let text): parts[part(event.entryID, .response)].text += text
            }
        case .reasoning(let action): parts[part(event.entryID, .reasoning)].text += action.text
        case .toolCalls(let action):
            switch action.kind {
            case .updateUsage(let usage): self.usage = usage
            case .call(let call): parts[part(event.entryID, .calls)].calls.append(call)
            }
        }
    }

    /// The index of the part with this id, which is added if it is new.
    private mutating func part(_ id: String, _ kind: Kind) -> Int {
        if let index = parts.firstIndex(where: { $0.id == id }) { return index }
        parts.append(Part(id: id, kind: kind))
        return parts.count - 1
    }

    /// The transcript's entries, in the order in which they began.
    func entries(schema: GenerationSchema?) -> [Transcript.Entry] {
        parts.map { part in
            switch part.kind {
            case .response:
                .response(
                    Transcript.Response(
                        id: part.id, segments: [segment(part.text, schema: schema)]))
            case .reasoning: .reasoning(Transcript.Reasoning(segments: [.text(part.text)]))
            case .calls: .toolCalls(Transcript.ToolCalls(part.calls))
            }
        }
    }

    private func segment(_ text: String, schema: GenerationSchema?) -> Transcript.Segment {
        guard let schema, let content = try? GeneratedContent(json: text) else {
            return .text(text)
        }
        return .structure(
            Transcript.StructuredSegment(schemaName: schema.name, content: content))
    }
}
