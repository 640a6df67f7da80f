import H2OKit
import MLX
import MLXLMCommon
import XCTest

final class QuantizedTests: XCTestCase {
    func testItsBitsCanBeAskedFor() throws {
        let same = try QuantizedH2OKVCache(maxSize: 16, groupSize: 32, bits: 4)
        let apart = try QuantizedH2OKVCache(maxSize: 16, keyBits: 8, valueBits: 4)

        XCTAssertEqual([same.keyBits, same.valueBits, same.groupSize], [4, 4, 32])
        XCTAssertEqual([apart.keyBits, apart.valueBits, apart.groupSize], [8, 4, 64])
        let mixed = try MixedH2OKVCache(maxSize: 16, heavyBits: 4, recentBits: 8, groupSize: 32)
        XCTAssertEqual([mixed.heavyBits, mixed.recentBits, mixed.groupSize], [4, 8, 32])
    }

    func testUpstreamDoesNotTakeItForOneOfItsOwn() throws {
        let cache: any KVCache = try QuantizedH2OKVCache(maxSize: 16)

        XCTAssertFalse(cache is any QuantizedKVCacheProtocol)
        XCTAssertTrue(cache is any RoutedAttentionCache)
    }

    func testBitsAndGroupsThatThereAreNotAreRefused() {
        XCTAssertThrowsError(try QuantizedH2OKVCache(maxSize: 16, bits: 5)) { error in
            XCTAssertEqual(
                error.localizedDescription,
                "key_bits must be 4 or 8, got 5.")
        }
        XCTAssertThrowsError(
            try QuantizedH2OKVCache(maxSize: 16, keyBits: 8, valueBits: 16))
        XCTAssertThrowsError(try QuantizedH2OKVCache(maxSize: 16, groupSize: 48, bits: 8)) {
            XCTAssertEqual(
                $0.localizedDescription,
                "group_size must be 32, 64 or 128, got 48.")
        }
        XCTAssertThrowsError(try MixedH2OKVCache(maxSize: 16, heavyBits: 3)) { error in
            XCTAssertEqual(
                error.localizedDescription, "heavy_bits must be 4, 8 or 16, got 3.")
        }
    }

    func testAGroupThatDoesNotDivideTheHeadDimIsAnErrorAndNotACrash() throws {
        let cache = try QuantizedH2OKVCache(maxSize: 16, groupSize: 64, bits: 8)
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
        let cache = try QuantizedH2OKVCache(maxSize: 16, groupSize: 32, bits: 8)
        let (keys, values) = cache.update(keys: tokens.keys, values: tokens.values)
        // A row of 8 bits: 8 words of the key, its scale and bias, then the value's.
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

/// A ring of recent rows beside a pool, each at its own precision.
final class MixedTests: XCTestCase {
    func testRowsOfAnotherKindAreRefused() throws {
        let cache = try MixedH2OKVCache(maxSize: 16, groupSize: 32)
        cache.attend(Tokens(5, seed: 1))
        var fields = cache.metaState
        fields[5] = try QuantizedH2OKVCache(maxSize: 16, groupSize: 32).metaState[5]
        let state = cache.state

        XCTAssertThrowsError(try MixedH2OKVCache(state: state, metaState: fields)) { error in
            XCTAssertTrue(error.localizedDescription.contains("another kind"), "\(error)")
        }
    }
}

/// Rows that are rotated before they are quantized.
final class RotationTests: XCTestCase {
    /// A cache that is not rotated says nothing of it, as before there were rotated ones.
    func testSavedCachesSayWhetherTheyAreRotated() throws {
        for (storage, isRotated) in [(H2OStorage.fourBits, false), (.rotatedFourBits, true)] {
            let cache = try storage.makeCache(maxSize: 16)
            cache.attend(Tokens(20, seed: 1))

            let saved = cache.metaState
            let restored = try QuantizedH2OKVCache(state: cache.state, metaState: saved)

            XCTAssertEqual(saved[5].contains("rotated"), isRotated, saved[5])
            XCTAssertEqual(restored.isRotated, isRotated)
        }
    }
}

extension MLXArray {
    /// The floats whose bits these 32-bit words are.
    fileprivate var asFloats: MLXArray {
        MLXArray(asArray(UInt32.self).map { Float(bitPattern: $0) }, shape)
    }
}
