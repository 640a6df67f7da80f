#if canImport(FoundationModels, _version: 2)
    import H2OFoundationModels
    import H2OSessions

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension BundledModel {
        /// This model for Apple's `LanguageModelSession`, even if another model would fit better.
        ///
        /// The first request or the session's `prewarm()` loads it. It is the same model
        /// that `load()` returns.
        ///
        /// - Parameter options: the options of requests that have none of their own
        public func languageModel(
            options: H2OSession.Options = H2OSession.Options()
        ) -> H2OLanguageModel {
            H2OLanguageModel(Self.conversationsOfEach[folderName]!, options: options)
        }

        private static let conversationsOfEach = Dictionary(
            uniqueKeysWithValues: all.map { model in
                (model.folderName, SharedConversations { try await model.load() })
            })
    }
#endif
