#if canImport(FoundationModels, _version: 2)
    import FoundationModels
    import H2OSessions

    /// Answers the requests of sessions with an ``H2OLanguageModel``.
    ///
    /// It holds no conversation. Requests do not say which session they are of, and whether
    /// sessions share an executor is the framework's choice; the model finds the conversation
    /// that a transcript continues.
    @available(iOS 27, macOS 27, visionOS 27, *)
    public struct H2OLanguageModelExecutor: LanguageModelExecutor {
        public typealias Model = H2OLanguageModel

        /// Equal for models that share their weights.
        public struct Configuration: Hashable, Sendable {
            let model: H2OSharedModel
        }

        public init(configuration: Configuration) {}

        /// Loads the model and reads the transcript, with its instructions and tools. Nobody
        /// learns of an error; the next request meets it again.
        public func prewarm(model: Model, transcript: Transcript) {
            model.model.prewarm { conversations, written in
                let messages = try TranscriptMessages(transcript, written: written).messages
                let tools = try transcript.tools.map(H2OToolDefinition.init)
                try await conversations.prewarm(messages, tools: tools, options: model.options)
            }
        }

        /// - Throws: `LanguageModelError` where the framework has a word for what is wrong;
        ///   otherwise the error of the engine or of loading
        public nonisolated(nonsending) func respond(
            to request: LanguageModelExecutorGenerationRequest, model: Model,
            streamingInto channel: LanguageModelExecutorGenerationChannel
        ) async throws {
            do {
                let options = try model.options.applying(request)
                let tools = try request.callableTools.map(H2OToolDefinition.init)
                let messages = try TranscriptMessages(
                    request.transcript, written: await model.model.writtenByID
                ).messages
                await model.model.prewarmed()
                let conversations = try await model.model.load()
                let entries = ResponseEntries(channel)
                let response = try await entries.send { emit in
                    try await conversations.respond(
                        to: messages, tools: tools, options: options, emit: emit)
                }
                if model.reportsUsage { await entries.send(response.usage) }
                if let text = await entries.malformedCall {
                    throw H2OSessionError.malformedToolCall(text)
                }
                if request.schema != nil {
                    await model.model.remember(response.text, as: entries.responseID)
                }
            } catch {
                throw LanguageModelError(engine: error) ?? error
            }
        }
    }
#endif
