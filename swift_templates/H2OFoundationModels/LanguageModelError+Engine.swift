#if canImport(FoundationModels, _version: 2)
    import FoundationModels
    import H2OSessions

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension LanguageModelError {
        /// The framework's error for one of the engine; nil if it has none.
        ///
        /// The context size is exceeded only by what can never be read: a system prompt, which
        /// the cache may not evict, or more tokens than the model has positions.
        init?(engine error: any Error) {
            guard let error = error as? H2OSessionError else { return nil }
            let description = error.errorDescription ?? ""
            switch error {
            case .systemPromptTooLong(let tokens, let atMost):
                self = .contextSizeExceeded(
                    .init(
                        contextSize: max(0, atMost), tokenCount: tokens,
                        debugDescription: description))
            default: return nil
            }
        }
    }
#endif
