#if canImport(FoundationModels, _version: 2) && (os(Linux) || H2O_TEST_FOUNDATION_MODELS)
    import Foundation
    import FoundationModels
    import H2OSessions
    import XCTest

    @testable import H2OFoundationModels

    @available(iOS 27, macOS 27, visionOS 27, *)
    final class RequestOptionsTests: XCTestCase {
        func testARequestWithoutOptionsTakesThoseOfTheModel() throws {
            let own = H2OSession.Options(
                sampling: H2OSampling(temperature: 0.5, topK: 7, seed: 3), maxTokens: 99,
                thinking: false)
            let options = try own.applying(request())
            XCTAssertEqual(options.sampling, own.sampling)
            XCTAssertEqual(options.maxTokens, 99)
            XCTAssertEqual(options.thinking, false)
            XCTAssertNil(options.schema)
        }

        func testATemperatureChangesOnlyTheTemperature() throws {
            let own = H2OSession.Options(sampling: H2OSampling(temperature: 0.5, topP: 0.9))
            let options = GenerationOptions(temperature: 1.25, maximumResponseTokens: 12)
            let result = try own.applying(request(options))
            XCTAssertEqual(result.sampling, H2OSampling(temperature: 1.25, topP: 0.9))
            XCTAssertEqual(result.maxTokens, 12)
            XCTAssertEqual(try sampling(GenerationOptions(temperature: -1)).temperature, 0)
        }

        func testASamplingModeReplacesWhatTheModelChoosesAmong() throws {
            let own = H2OSampling(temperature: 0.5, topP: 0.9, topK: 20, minP: 0.1, seed: 1)
            XCTAssertEqual(
                try sampling(GenerationOptions(samplingMode: .random(top: 5, seed: 2)), own),
                H2OSampling(temperature: 0.5, topP: 1, topK: 5, minP: 0, seed: 2))
            XCTAssertEqual(
                try sampling(
                    GenerationOptions(samplingMode: .random(probabilityThreshold: 0.25)), own),
                H2OSampling(temperature: 0.5, topP: 0.25, topK: 0, minP: 0, seed: 1))
        }

        func testGreedyIsGreedyWhateverTheTemperature() throws {
            XCTAssertEqual(
                try sampling(GenerationOptions(samplingMode: .greedy, temperature: 2)), .greedy)
            XCTAssertEqual(
                try sampling(GenerationOptions(samplingMode: .random(probabilityThreshold: 0))),
                .greedy)
        }

        func testEachReasoningLevelThinksButNoThink() throws {
            let levels: [(ContextOptions.ReasoningLevel, Bool)] = [
                (.light, true), (.moderate, true), (.deep, true), (.custom("hard"), true),
                (.custom("no_think"), false),
            ]
            for (level, thinks) in levels {
                let context = ContextOptions(reasoningLevel: level)
                let options = try H2OSession.Options().applying(request(context: context))
                XCTAssertEqual(options.thinking, thinks, "\(level)")
            }
        }

        func testACallMustBeMadeWhereItIsRequired() throws {
            for (mode, isRequired) in [
                (nil, false), (GenerationOptions.ToolCallingMode.allowed, false),
                (.required, true), (.disallowed, false),
            ] {
                let options = GenerationOptions(toolCallingMode: mode)
                let result = try H2OSession.Options().applying(request(options))
                XCTAssertEqual(result.requiresToolCall, isRequired)
            }
        }

        func testAToolKeepsTheSchemaOfItsArguments() throws {
            let tool = Transcript.ToolDefinition(
                name: "weather", description: "tells it", parameters: try schema("object"))
            XCTAssertEqual(
                try H2OToolDefinition(tool),
                try H2OToolDefinition(
                    name: "weather", description: "tells it",
                    parameters: .object(["type": .string("object")])))
        }

        func testASchemaIsThatOfTheReply() throws {
            let options = try H2OSession.Options().applying(request(schema: schema("integer")))
            XCTAssertEqual(options.schema?.json, #"{"type":"integer"}"#)
        }

        private func schema(_ type: String) throws -> GenerationSchema {
            try JSONDecoder().decode(
                GenerationSchema.self, from: Data(#"{"type": "\#(type)"}"#.utf8))
        }

        private func sampling(
            _ options: GenerationOptions, _ own: H2OSampling = H2OSampling()
        ) throws -> H2OSampling {
            try H2OSession.Options(sampling: own).applying(request(options)).sampling
        }

        private func request(
            _ options: GenerationOptions = GenerationOptions(),
            context: ContextOptions = ContextOptions(), schema: GenerationSchema? = nil
        ) -> LanguageModelExecutorGenerationRequest {
            LanguageModelExecutorGenerationRequest(
                id: UUID(), transcript: Transcript(), enabledTools: [], schema: schema,
                generationOptions: options, contextOptions: context, metadata: [:])
        }
    }
#endif
