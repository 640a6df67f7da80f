#if canImport(FoundationModels, _version: 2)
    import H2OFoundationModels
    import H2OSessions

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension BundledModel {
        /// This model for Apple's `LanguageModelSession`, whichever one would fit best.
        ///
        /// It is loaded with the first request or by the session's `prewarm()`, once for all
        /// sessions with it, those of `load()` too.
        ///
        /// - Parameter options: what requests leave open
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
