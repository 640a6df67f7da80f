#if canImport(FoundationModels, _version: 2)
    import Foundation
    import FoundationModels
    import H2OSessions

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension LanguageModelError {
        /// The framework's error for one of the engine; nil if it has none.
        ///
        /// The context size is exceeded only by what can never be read: a system prompt, which
        /// the cache may not evict, or more tokens than the model has positions.
        init?(engine error: any Error) {
            let description = (error as? any LocalizedError)?.errorDescription ?? "\(error)"
            switch error {
            case H2OSessionError.systemPromptTooLong(let tokens, let most),
                H2OSessionError.promptTooLong(let tokens, let most):
                self = .contextSizeExceeded(
                    .init(
                        contextSize: max(0, most), tokenCount: tokens,
                        debugDescription: description))
            case H2OSessionError.noGrammarEngine:
                self = .unsupportedCapability(
                    .init(capability: .guidedGeneration, debugDescription: description))
            case H2OSessionError.invalidSchema, H2OSessionError.noRoomForSchema:
                self = .unsupportedGenerationGuide(
                    .init(schemaName: nil, debugDescription: description))
            default: return nil
            }
        }
    }
#endif
