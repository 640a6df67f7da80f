import H2OKit
import MLX
import MLXLMCommon
import XCTest

final class QuantizedTests: XCTestCase {
    func testAGroupSizeThatThereIsNotIsRefused() throws {
        let configuration = try H2OConfiguration(maxSize: 16)

        XCTAssertThrowsError(try H2OStorage.eightBits.makeCache(configuration, groupSize: 48)) {
            XCTAssertEqual(
                $0.localizedDescription, "group_size must be 32, 64 or 128, got 48.")
        }
    }

    func testAGroupThatDoesNotDivideTheHeadDimIsAnErrorAndNotACrash() throws {
        let cache = try H2OStorage.eightBits.makeCache(H2OConfiguration(maxSize: 16))
        let tokens = Tokens(4, seed: 1)

        XCTAssertThrowsError(
            try withError {
                cache.attend(
                    queries: tokens.queries, keys: tokens.keys, values: tokens.values,
                    scale: Heads.scale, mask: .causal)
            })
    }

    func testAttentionOverPackedRowsEqualsThatOverWidenedOnes() throws {
        let tokens = Tokens(9, seed: 1)
        let cache = try H2OStorage.eightBits.makeCache(maxSize: 16)
        let (keys, values) = cache.update(keys: tokens.keys, values: tokens.values)
        // A row with 8 bits has 8 words, a scale and a bias of the key, and then those of the
        // value.
        let rows = cache.state[0]
        func part(_ range: Range<Int>) -> MLXArray { rows[.ellipsis, range] }

        let (output, scores) = MLXFast.scaledDotProductAttentionQuantizedWithScores(
            queries: tokens.queries,
            quantizedKeys: (part(0 ..< 8), part(8 ..< 9).asFloats, part(9 ..< 10).asFloats),
            quantizedValues: (part(10 ..< 18), part(18 ..< 19).asFloats, part(19 ..< 20).asFloats),
            scale: Heads.scale, keyBits: 8, valueBits: 8, groupSize: 32, mask: .causal)

        let (expected, logits) = MLXFast.scaledDotProductAttentionWithScores(
            queries: tokens.queries, keys: keys, values: values, scale: Heads.scale,
            mask: .causal)
        XCTAssertEqual(scores.shape, [Heads.queries * 9, 9])
        XCTAssertLessThan(
            largestDifference(output.asArray(Float.self), expected.asArray(Float.self)), 1e-5)
        XCTAssertLessThan(
            largestDifference(scores.asArray(Float.self), logits.asArray(Float.self)), 1e-5)
    }
}

/// Tests caches with a ring of recent rows and a pool, each with its own precision.
final class MixedTests: XCTestCase {
    func testRowsOfAnotherKindOrWithOtherBitsAreRefused() throws {
        let cache = try H2OStorage.recent16Heavy8.makeCache(maxSize: 16)
        cache.attend(Tokens(5, seed: 1))
        var fields = cache.metaState
        fields[5] = try H2OStorage.eightBits.makeCache(maxSize: 16).metaState[5]
        let state = cache.state

        XCTAssertThrowsError(try H2OKVCache(state: state, metaState: fields)) { error in
            XCTAssertTrue(error.localizedDescription.contains("another kind"), "\(error)")
        }
        fields[5] = cache.metaState[5].replacing("\"heavy_bits\":8", with: "\"heavy_bits\":5")
        XCTAssertNotEqual(fields[5], cache.metaState[5])
        XCTAssertThrowsError(try H2OKVCache(state: state, metaState: fields)) { error in
            guard case .damaged? = error as? H2OCacheError else { return XCTFail("\(error)") }
        }
    }
}

/// Tests rows that are rotated before they are quantized.
final class RotationTests: XCTestCase {
    /// The strings of a cache that is not rotated do not contain `rotated`.
    func testSavedCachesSayWhetherTheyAreRotated() throws {
        for (storage, isRotated) in [(H2OStorage.fourBits, false), (.rotatedFourBits, true)] {
            let cache = try storage.makeCache(maxSize: 16)
            cache.attend(Tokens(20, seed: 1))

            let saved = cache.metaState
            let restored = try H2OKVCache(state: cache.state, metaState: saved)

            XCTAssertEqual(saved[5].contains("rotated"), isRotated, saved[5])
            XCTAssertEqual(restored.metaState, saved)
        }
    }
}

extension MLXArray {
    /// The 32-bit words as floats with the same bits.
    fileprivate var asFloats: MLXArray {
        MLXArray(asArray(UInt32.self).map { Float(bitPattern: $0) }, shape)
    }
}
