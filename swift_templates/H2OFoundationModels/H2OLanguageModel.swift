#if canImport(FoundationModels, _version: 2)
    import FoundationModels
    import H2OSessions

    /// A model in bounded memory for Apple's `LanguageModelSession`.
    ///
    ///     let session = LanguageModelSession(model: BundledModel.languageModel())
    ///     print(try await session.respond(to: "What is a heavy hitter?").content)
    ///
    /// The model is loaded with the first request, or with the session's `prewarm()`. Its
    /// caches go on from request to request: a request reads what its transcript has beyond
    /// the one before. The conversation has no largest size.
    @available(iOS 27, macOS 27, visionOS 27, *)
    public struct H2OLanguageModel: FoundationModels.LanguageModel {
        public typealias Executor = H2OLanguageModelExecutor

        let model: H2OSharedModel
        let options: H2OSession.Options
        let reportsUsage: Bool
        public let capabilities: LanguageModelCapabilities

        /// - Parameters:
        ///   - model: what sessions share
        ///   - options: what a request's `GenerationOptions` and `ContextOptions` leave open
        ///   - capabilities: what the model can do. The framework refuses a request that needs
        ///     more.
        ///   - reportsUsage: whether the framework is told how many tokens a response took. A
        ///     beta of iOS 27 lacked the function for that, and ended the app.
        public init(
            _ model: H2OSharedModel, options: H2OSession.Options = H2OSession.Options(),
            capabilities: [LanguageModelCapabilities.Capability] = [
                .toolCalling, .guidedGeneration, .reasoning,
            ],
            reportsUsage: Bool = true
        ) {
            self.model = model
            self.options = options
            self.capabilities = LanguageModelCapabilities(capabilities)
            self.reportsUsage = reportsUsage
        }

        public var executorConfiguration: Executor.Configuration {
            Executor.Configuration(model: model)
        }
    }
#endif
