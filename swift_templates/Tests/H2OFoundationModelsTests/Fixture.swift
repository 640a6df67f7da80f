#if os(Linux) && canImport(FoundationModels, _version: 2)
    import Foundation
    import FoundationModels
    import H2OFoundationModels
    import H2OKit
    import H2OSessions
    import H2OTestModels
    import MLXLMCommon

    /// Sessions on an ``EchoModel``, and the model to look at.
    struct Fixture {
        let model = EchoModel()
        let loads = Loads()
        let shared: H2OSharedModel

        /// - Parameter texts: what the model says, one text a reply
        init(maxSize: Int = 512, saying texts: String...) throws {
            let configuration = try H2OConfiguration(maxSize: maxSize, recentBudget: 8)
            shared = H2OSharedModel { [model, loads] in
                try loads.add()
                let context = ModelContext(
                    configuration: ModelConfiguration(id: "echo", eosTokenIds: [EchoModel.stop]),
                    model: model, processor: NoProcessor(), tokenizer: LetterTokenizer())
                return H2OModel(
                    context: context, caches: H2OCaches(configuration: configuration))
            }
            for text in texts { say(text) }
        }

        func session(instructions: String? = nil) -> LanguageModelSession {
            LanguageModelSession(model: H2OLanguageModel(shared), instructions: instructions)
        }

        /// Lets the model say a text in its next reply that has none yet.
        func say(_ text: String) { model.replies.append(text + "|") }
    }

    /// How often a model was loaded, and how often that shall fail.
    final class Loads: @unchecked Sendable {
        private let lock = NSLock()
        private(set) var count = 0
        var failures = 0

        func add() throws {
            try lock.withLock {
                if failures > 0 {
                    failures -= 1
                    throw LoadFailure()
                }
                count += 1
            }
        }
    }

    struct LoadFailure: Error {}

    /// The error that an expression throws.
    func failure<T>(of expression: @autoclosure () async throws -> T) async -> (any Error)? {
        do {
            _ = try await expression()
            return nil
        } catch {
            return error
        }
    }
#endif
