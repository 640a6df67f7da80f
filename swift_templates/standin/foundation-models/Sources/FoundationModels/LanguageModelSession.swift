import Synchronization

/// A conversation: keeps the transcript, calls the model's executor, and runs tools until the
/// model calls none.
public final class LanguageModelSession: Sendable {
    private let model: any LanguageModel
    private let tools: [any Tool]
    private let executor: BoundExecutor
    private let said: Mutex<Transcript>

    public convenience init<Model: LanguageModel>(
        model: Model, tools: [any Tool] = [], instructions: String? = nil
    ) {
        let definitions = tools.map(\.definition)
        let first = Transcript.Instructions(
            segments: instructions.map { [.text(Transcript.TextSegment(content: $0))] } ?? [],
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
        said = Mutex(transcript)
    }

    public var transcript: Transcript { said.withLock { $0 } }

    public func prewarm() { executor.prewarm(transcript) }

    @discardableResult
    public nonisolated(nonsending) func respond(
        to prompt: String, options: GenerationOptions = GenerationOptions(),
        contextOptions: ContextOptions = ContextOptions()
    ) async throws -> Response<String> {
        let made = Transcript.Prompt(
            segments: Prompt(prompt).segments, options: options, contextOptions: contextOptions)
        let reply = try await reply(to: made, schema: nil) { _ in }
        return Response(content: reply.text, reply)
    }

    @discardableResult
    public nonisolated(nonsending) func respond<Content: Generable>(
        to prompt: String, generating type: Content.Type = Content.self,
        options: GenerationOptions = GenerationOptions(),
        contextOptions: ContextOptions = ContextOptions(includeSchemaInPrompt: true)
    ) async throws -> Response<Content> {
        let schema = Content.generationSchema
        let made = Transcript.Prompt(
            segments: Prompt(prompt).segments, options: options,
            responseFormat: Transcript.ResponseFormat(schema: schema),
            contextOptions: contextOptions)
        let reply = try await reply(to: made, schema: schema) { _ in }
        return Response(content: try Content(GeneratedContent(json: reply.text)), reply)
    }

    /// Each snapshot has all of the text so far.
    public func streamResponse(
        to prompt: String, options: GenerationOptions = GenerationOptions(),
        contextOptions: ContextOptions = ContextOptions()
    ) -> ResponseStream {
        let made = Transcript.Prompt(
            segments: Prompt(prompt).segments, options: options, contextOptions: contextOptions)
        let (snapshots, parts) = AsyncThrowingStream<ResponseStream.Snapshot, any Error>
            .makeStream()
        let task = Task {
            do {
                _ = try await reply(to: made, schema: nil) { text in
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
        said.withLock { $0.entries = after }
        return reply
    }

    private nonisolated(nonsending) func output(
        of call: Transcript.ToolCall
    ) async throws -> Transcript.ToolOutput {
        guard let tool = tools.first(where: { $0.name == call.toolName }) else {
            throw UnknownTool(name: call.toolName)
        }
        let segments = try await tool.answer(call.arguments)
        return Transcript.ToolOutput(id: call.id, toolName: call.toolName, segments: segments)
    }
}

struct UnknownTool: Error {
    let name: String
}

extension LanguageModelCapabilities {
    /// - Throws: `LanguageModelError.unsupportedCapability`
    fileprivate func check(
        _ prompt: Transcript.Prompt, schema: GenerationSchema?, tools: Bool
    ) throws {
        let asked: [(Capability, Bool)] = [
            (.toolCalling, tools), (.guidedGeneration, schema != nil),
            (.reasoning, prompt.contextOptions.reasoningLevel != nil),
        ]
        for (capability, isAsked) in asked where isAsked && !contains(capability) {
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
    ) async throws -> [Transcript.Segment] {
        try await call(arguments: Arguments(arguments)).promptRepresentation.segments
    }
}
