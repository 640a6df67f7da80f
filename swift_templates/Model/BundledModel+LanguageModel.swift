#if canImport(FoundationModels, _version: 2)
    import H2OFoundationModels
    import H2OSessions

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension BundledModel {
        /// The model for Apple's `LanguageModelSession`.
        ///
        ///     let session = LanguageModelSession(model: BundledModel.languageModel())
        ///
        /// The first request or the session's `prewarm()` loads it. It is the same model
        /// that `load()` returns.
        ///
        /// - Parameter options: the options of requests that have none of their own
        public static func languageModel(
            options: H2OSession.Options = H2OSession.Options()
        ) -> H2OLanguageModel {
            H2OLanguageModel(conversations, options: options)
        }

        private static let conversations = SharedConversations { try await load() }
    }
#endif
