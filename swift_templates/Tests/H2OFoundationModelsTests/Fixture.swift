#if canImport(FoundationModels, _version: 2) && (os(Linux) || H2O_TEST_FOUNDATION_MODELS)
    import Foundation
    import FoundationModels
    import H2OFoundationModels
    import H2OKit
    import H2OSessions
    import H2OTestModels
    import MLXLMCommon

    /// Sessions with an ``EchoModel``, and the model, so that a test can inspect it.
    @available(iOS 27, macOS 27, visionOS 27, *)
    struct Fixture {
        let model: EchoModel
        /// The loads of the model, including those that failed.
        let loads = Recorder<Void>()
        let shared: SharedConversations
        private let options: H2OSession.Options

        /// - Parameters:
        ///   - template: the chat template; nil for `<u:text|`
        ///   - thinks: whether the model may think
        ///   - failures: how many loads fail
        ///   - texts: the texts of the model's replies, in order
        init(
            _ template: ChatTemplate? = nil, thinks: Bool = true, maxSize: Int = 2048,
            failures: Int = 0, saying texts: String...
        ) throws {
            let caches = H2OCaches(
                configuration: try H2OConfiguration(maxSize: maxSize, recentBudget: 8))
            model = EchoModel(template, thinks: thinks)
            model.replies = texts
            options = H2OSession.Options(thinking: thinks ? nil : false)
            shared = SharedConversations { [model, loads] in
                guard loads.add(()) >= failures else { throw LoadFailure() }
                let loaded = H2OModel(context: model.context(), caches: caches)
                return template.map(loaded.withGrammars) ?? loaded
            }
        }

        private var languageModel: H2OLanguageModel {
            H2OLanguageModel(shared, options: options)
        }

        func session(
            instructions: String? = nil, tools: [any FoundationModels.Tool] = []
        ) -> LanguageModelSession {
            LanguageModelSession(model: languageModel, tools: tools, instructions: instructions)
        }

        /// A session that continues a transcript with these entries.
        func session(
            after entries: some Sequence<Transcript.Entry>, tools: [any FoundationModels.Tool] = []
        ) -> LanguageModelSession {
            LanguageModelSession(
                model: languageModel, tools: tools, transcript: Transcript(entries: entries))
        }
    }

    struct LoadFailure: Error {}

    /// Returns the error that an expression throws.
    func failure<T>(of expression: @autoclosure () async throws -> T) async -> (any Error)? {
        do {
            _ = try await expression()
            return nil
        } catch {
            return error
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension LanguageModelSession.Usage {
        /// The tokens that were read for a response.
        var readTokenCount: Int { input.totalTokenCount - input.cachedTokenCount }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension Transcript.Entry {
        static func instructions(_ text: String) -> Transcript.Entry {
            .instructions(
                Transcript.Instructions(segments: [.text(text)], toolDefinitions: []))
        }

        static func prompt(_ text: String) -> Transcript.Entry {
            .prompt(Transcript.Prompt(segments: [.text(text)]))
        }

        static func response(_ text: String) -> Transcript.Entry {
            .response(Transcript.Response(segments: [.text(text)]))
        }

        static func reasoning(_ text: String) -> Transcript.Entry {
            .reasoning(Transcript.Reasoning(segments: [.text(text)]))
        }

        static func output(_ text: String, of call: Transcript.ToolCall) -> Transcript.Entry {
            .toolOutput(
                Transcript.ToolOutput(
                    id: call.id, toolName: call.toolName, segments: [.text(text)]))
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension Transcript.Segment {
        static func text(_ text: String) -> Transcript.Segment {
            .text(Transcript.TextSegment(content: text))
        }
    }
#endif
