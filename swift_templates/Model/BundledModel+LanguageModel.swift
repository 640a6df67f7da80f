#if canImport(FoundationModels, _version: 2)
    import H2OFoundationModels
    import H2OSessions

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension BundledModel {
        /// The model for Apple's `LanguageModelSession`.
        ///
        ///     let session = LanguageModelSession(model: BundledModel.languageModel())
        ///
        /// It is loaded with the first request or by the session's `prewarm()`, once for all
        /// sessions, those of `load()` too.
        ///
        /// - Parameter options: what requests leave open
        public static func languageModel(
            options: H2OSession.Options = H2OSession.Options()
        ) -> H2OLanguageModel {
            H2OLanguageModel(conversations, options: options)
        }

        private static let conversations = SharedConversations { try await load() }
    }
#endif
