#if canImport(MLXOptimizers)  // mlx-swift itself, which the stand-in is not
    import Foundation
    import H2OKit
    import H2OTestModels
    import MLX
    import MLXLMCommon
    import XCTest

    /// Tests upstream's own functions for generation with H2O caches.
    final class UpstreamTests: XCTestCase {
        private func parameters() throws -> GenerateParameters {
            var parameters = GenerateParameters(maxTokens: 40, temperature: 0)
            parameters.useH2O(
                H2OCaches(configuration: try H2OConfiguration(maxSize: 32, recentBudget: 8)))
            return parameters
        }

        private func context(
            _ model: EchoModel, _ tokenizer: any MLXLMCommon.Tokenizer = TestTokenizer()
        ) -> ModelContext {
            ModelContext(
                configuration: ModelConfiguration(id: "echo", eosTokenIds: [EchoModel.stop]),
                model: model, processor: TemplateProcessor(), tokenizer: tokenizer)
        }

        func testAChatSessionsCachesStayBounded() async throws {
            let model = EchoModel()
            let session = ChatSession(
                ModelContainer(context: context(model)), generateParameters: try parameters())

            for _ in 0 ..< 3 {
                _ = try await session.respond(to: String(repeating: "tell me more. ", count: 4))
                XCTAssertEqual(model.lastCaches.count, 2)
                for cache in model.lastCaches {
                    XCTAssertEqual((cache as? H2OKVCache)?.length, 32)
                }
            }
        }

        func testAChatSessionReadsOnlyWhatIsNew() async throws {
            let model = EchoModel()
            model.script = TestTokenizer().tokens(of: "so it is|")
            let session = ChatSession(
                ModelContainer(context: context(model)), generateParameters: try parameters())
            _ = try await session.respond(to: String(repeating: "tell me more. ", count: 4))
            let first = model.calls.count

            model.script = TestTokenizer().tokens(of: "yes|")
            _ = try await session.respond(to: "and then")

            let read = model.calls[first...].map(\.count).max() ?? 0
            XCTAssertLessThan(read, 30)
            XCTAssertEqual((model.lastCaches.first as? H2OKVCache)?.length, 32)
        }

        /// After a cancel, the app may be in the background, where a step on the GPU would end it.
        func testNoStepFollowsACancel() async throws {
            let model = EchoModel()
            let cancelling = TestTokenizer { withUnsafeCurrentTask { $0?.cancel() } }
            let stream = try generate(
                input: LMInput(tokens: tokenArray([9, 10, 11])), parameters: parameters(),
                context: context(model, cancelling))
            for await _ in stream {}

            // There are two calls: for the prompt, and for the token after the first one, in
            // advance.
            XCTAssertEqual(model.calls.count, 2)
        }

        func testSpeculativeDecodingRefusesThemByName() throws {
            XCTAssertThrowsError(
                try SpeculativeTokenIterator(
                    input: LMInput(tokens: tokenArray([9, 10, 11])), mainModel: EchoModel(),
                    draftModel: EchoModel(), parameters: parameters(), numDraftTokens: 2)
            ) { error in
                XCTAssertTrue(error is SpeculationRefused, "\(error)")
                XCTAssertTrue(error.localizedDescription.contains("H2OKVCache"), "\(error)")
            }
        }
    }

    private struct TemplateProcessor: UserInputProcessor {
        func prepare(input: UserInput) async throws -> LMInput {
            let messages = DefaultMessageGenerator().generate(from: input)
            let ids = try TestTokenizer().applyChatTemplate(messages: messages)
            return LMInput(tokens: tokenArray(ids))
        }
    }
#endif
