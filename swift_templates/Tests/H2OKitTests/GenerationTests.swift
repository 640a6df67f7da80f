import H2OKit
import MLX
import MLXLMCommon
import XCTest

/// Generation makes H2O caches where its parameters say so.
final class GenerationTests: XCTestCase {
    private let prompt = LMInput(tokens: MLXArray((1 ... 40).map { Int32($0) }))

    private func parameters(_ storage: H2OStorage = .dense) throws -> GenerateParameters {
        var parameters = GenerateParameters(maxTokens: 8, temperature: 0)
        parameters.useH2O(
            H2OCaches(
                configuration: try H2OConfiguration(maxSize: 16), storage: storage, groupSize: 32))
        return parameters
    }

    func testTheTokenIteratorMakesThem() throws {
        for storage in H2OStorage.allCases {
            let model = TinyModel { [KVCacheSimple(), KVCacheSimple()] }

            let tokens = Array(
                try TokenIterator(input: prompt, model: model, parameters: parameters(storage)))

            XCTAssertEqual(tokens.count, 8)
            XCTAssertEqual(model.given.count, 2)
            for cache in model.given {
                let cache = try XCTUnwrap(cache as? any H2OScoreTracking)
                XCTAssertEqual(cache.length, 16, "\(storage)")
                XCTAssertGreaterThanOrEqual(cache.offset, 48)
            }
        }
    }

    func testTheSameTokensComeFromCachesMadeBefore() throws {
        let model = TinyModel { [KVCacheSimple(), KVCacheSimple()] }
        let caches = try H2OCaches.make(
            for: model, configuration: H2OConfiguration(maxSize: 16))
        let plain = GenerateParameters(maxTokens: 8, temperature: 0)

        let given = Array(
            try TokenIterator(input: prompt, model: model, cache: caches, parameters: plain))

        XCTAssertEqual(
            given, Array(try TokenIterator(input: prompt, model: model, parameters: parameters())))
    }

    func testTheSchemeWithoutItsMakerIsAnError() {
        let model = TinyModel { [KVCacheSimple()] }
        let parameters = GenerateParameters(kvScheme: "h2o")

        XCTAssertThrowsError(
            try TokenIterator(input: prompt, model: model, parameters: parameters)
        ) { error in
            XCTAssertEqual(
                error.localizedDescription,
                "kvScheme is \"h2o\", but kvCacheMaker makes no such caches. With H2OKit, "
                    + "parameters.useH2O(_:) sets both.")
        }
    }

    func testAnotherBoundOrQuantizationIsRefused() throws {
        let model = TinyModel { [KVCacheSimple()] }
        var bounded = try parameters()
        bounded.maxKVSize = 512
        var quantized = try parameters()
        quantized.kvBits = 8

        for (parameters, name) in [(bounded, "maxKVSize"), (quantized, "kvBits")] {
            XCTAssertThrowsError(
                try TokenIterator(input: prompt, model: model, parameters: parameters)
            ) { error in
                XCTAssertTrue(
                    error.localizedDescription.hasPrefix(
                        "\(name) and H2O caches exclude each other"), "\(error)")
            }
        }
    }

    func testAnUnfitModelIsAnErrorOfGeneration() throws {
        let model = Gemma2Model { [KVCacheSimple()] }

        XCTAssertThrowsError(
            try TokenIterator(input: prompt, model: model, parameters: parameters())
        ) { error in
            guard case .unfit("Gemma2Model", _) = error as? H2OCachesError else {
                return XCTFail("\(error)")
            }
        }
    }
}
