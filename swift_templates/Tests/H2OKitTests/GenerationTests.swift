import H2OKit
import MLX
import MLXLMCommon
import XCTest

/// Tests that generation makes H2O caches if its parameters contain them.
final class GenerationTests: XCTestCase {
    private let prompt = LMInput(tokens: MLXArray((1 ... 40).map { Int32($0) }))

    private func parameters(_ storage: H2OStorage = .sixteenBits) throws -> GenerateParameters {
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
            XCTAssertEqual(model.lastCaches.count, 2)
            for cache in model.lastCaches {
                let cache = try XCTUnwrap(cache as? H2OKVCache)
                XCTAssertEqual(cache.length, 16, "\(storage)")
                XCTAssertGreaterThanOrEqual(cache.offset, 48)
            }
        }
    }

    func testTheSameTokensComeFromCachesMadeBefore() throws {
        let model = TinyModel { [KVCacheSimple(), KVCacheSimple()] }
        let caches = try H2OCaches(
            configuration: H2OConfiguration(maxSize: 16)
        ).makeCaches(for: model)
        let plain = GenerateParameters(maxTokens: 8, temperature: 0)

        let tokens = Array(
            try TokenIterator(input: prompt, model: model, cache: caches, parameters: plain))

        XCTAssertEqual(
            tokens, Array(try TokenIterator(input: prompt, model: model, parameters: parameters())))
    }

    /// A cache copies its rows if other code still holds them, and upstream may evaluate all caches
    /// with each token. This test checks that a step copies no rows: it counts the bytes that a
    /// step allocates. With more rows, only the bytes of the ledgers may grow.
    func testAStepCopiesNoRows() throws {
        let (few, many) = (try bytesOfAStep(rows: 256), try bytesOfAStep(rows: 768))
        let row = Heads.kv * (Heads.keyDim + Heads.valueDim) * MemoryLayout<Float>.size

        XCTAssertLessThanOrEqual(many.new - few.new, many.ledgers - few.ledgers + row)
    }

    /// The most bytes that one of 20 steps of full caches allocates, and the bytes of all ledgers,
    /// which each step allocates again.
    private func bytesOfAStep(rows: Int) throws -> (new: Int, ledgers: Int) {
        let prompt = LMInput(tokens: MLXArray((0 ..< rows).map { Int32($0) }))
        var parameters = GenerateParameters(maxTokens: 40, temperature: 0)
        parameters.useH2O(H2OCaches(configuration: try H2OConfiguration(maxSize: rows)))
        let model = TinyModel { [KVCacheSimple(), KVCacheSimple()] }
        var tokens = try TokenIterator(input: prompt, model: model, parameters: parameters)
        for _ in 0 ..< 2 { _ = tokens.next() }

        var most = 0
        for _ in 0 ..< 20 {
            eval(model.lastCaches.flatMap { $0.innerState() })
            let before = Memory.activeMemory
            Memory.peakMemory = 0
            _ = tokens.next()
            eval(model.lastCaches.flatMap { $0.innerState() })
            most = max(most, Memory.peakMemory - before)
        }
        let ledgers = model.lastCaches.flatMap { $0.innerState() }
        return (most, ledgers.map { $0.size * MemoryLayout<Float>.size }.reduce(0, +))
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
                        "\(name) cannot be used with H2O caches"), "\(error)")
            }
        }
    }
}
