#if canImport(FoundationModels, _version: 2)
    import Foundation
    import FoundationModels
    import H2OSessions

    /// A model in bounded memory for Apple's `LanguageModelSession`.
    ///
    ///     let session = LanguageModelSession(model: BundledModel.languageModel())
    ///     print(try await session.respond(to: "What is a heavy hitter?").content)
    ///
    /// The model is loaded with the first request, or with the session's `prewarm()`. Its caches
    /// are kept between requests: a request reads only the new part of its transcript. A
    /// conversation may have any length.
    @available(iOS 27, macOS 27, visionOS 27, *)
    public struct H2OLanguageModel: FoundationModels.LanguageModel {
        public typealias Executor = H2OLanguageModelExecutor

        let model: SharedConversations
        let options: H2OSession.Options
        public let capabilities: LanguageModelCapabilities

        /// Uses a loaded model.
        ///
        /// - Parameters:
        ///   - model: the model, which stays in memory as long as this object or a copy of it
        ///     exists
        ///   - options: the options for which a request's `GenerationOptions` and `ContextOptions`
        ///     have no value
        ///   - capabilities: the model's capabilities; nil for all that this package supports. The
        ///     framework refuses a request that needs others.
        public init(
            _ model: H2OModel, options: H2OSession.Options = H2OSession.Options(),
            capabilities: [LanguageModelCapabilities.Capability]? = nil
        ) {
            self.init(SharedConversations { model }, options: options, capabilities: capabilities)
        }

        /// Uses a model that the first request or `prewarm()` loads.
        ///
        /// - Parameter load: loads the model, or returns it if it is loaded already
        public init(
            options: H2OSession.Options = H2OSession.Options(),
            capabilities: [LanguageModelCapabilities.Capability]? = nil,
            load: @escaping @Sendable () async throws -> H2OModel
        ) {
            self.init(SharedConversations(load), options: options, capabilities: capabilities)
        }

        package init(
            _ conversations: SharedConversations,
            options: H2OSession.Options = H2OSession.Options(),
            capabilities: [LanguageModelCapabilities.Capability]? = nil
        ) {
            model = conversations
            self.options = options
            self.capabilities = LanguageModelCapabilities(
                capabilities ?? [.toolCalling, .reasoning, .guidedGeneration])
        }

        /// Releases the conversations' caches, and the weights if nothing else uses the model.
        /// Running requests keep both until they end. The next request loads the model again.
        public func unload() async {
            await model.unload()
        }

        /// Equal for models that share their weights.
        public var executorConfiguration: ObjectIdentifier { ObjectIdentifier(model) }
    }

    /// Answers the requests of sessions with an ``H2OLanguageModel``.
    ///
    /// An executor stores no conversation. A request does not name its session, and the framework
    /// decides whether sessions share an executor. The model therefore finds the conversation that a
    /// transcript continues.
    @available(iOS 27, macOS 27, visionOS 27, *)
    public struct H2OLanguageModelExecutor: LanguageModelExecutor {
        public typealias Model = H2OLanguageModel

        public init(configuration: ObjectIdentifier) {}

        /// Loads the model and reads the transcript with its instructions and tools. Errors are
        /// ignored; the next request will report them.
        public func prewarm(model: Model, transcript: Transcript) {
            model.model.prewarm { conversations, written in
                let messages = try TranscriptMessages(transcript, written: written).messages
                let tools = try transcript.tools.map(H2OToolDefinition.init)
                try await conversations.prewarm(messages, tools: tools, options: model.options)
            }
        }

        /// - Throws: `CancellationError` for a canceled request, whose text is incomplete;
        ///   `LanguageModelError` if it has a case for the error; otherwise the error of the
        ///   session or of loading
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
                await entries.send(response.usage)
                guard response.usage.stop != .cancelled else { throw CancellationError() }
                if let text = await entries.malformedCall {
                    throw H2OSessionError.malformedToolCall(text)
                }
                if request.schema != nil {
                    await model.model.remember(response.content, as: entries.responseID)
                }
            } catch {
                throw LanguageModelError(engine: error) ?? error
            }
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension LanguageModelError {
        /// The framework's error for an error of the session; nil if the framework has none.
        ///
        /// `contextSizeExceeded` stands only for text that can never be read: a system prompt that
        /// does not fit into the cache, or more tokens than the model has positions.
        init?(engine error: any Error) {
            let description = (error as? any LocalizedError)?.errorDescription ?? "\(error)"
            switch error {
            case H2OSessionError.systemPromptTooLong(let tokens, let most),
                H2OSessionError.promptTooLong(let tokens, let most):
                self = .contextSizeExceeded(
                    .init(
                        contextSize: max(0, most), tokenCount: tokens,
                        debugDescription: description))
            case H2OSessionError.invalidSchema:
                self = .unsupportedGenerationGuide(
                    .init(schemaName: nil, debugDescription: description))
            default: return nil
            }
        }
    }
#endif
