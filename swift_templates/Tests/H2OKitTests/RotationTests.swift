import H2OKit
import MLX
import XCTest

/// Rows that are rotated before they are quantized.
final class RotationTests: XCTestCase {
    /// Many models have elements of keys that are many times as large as the rest.
    func testALargeElementCostsTheOthersLess() throws {
        let tokens = Tokens(30, seed: 1)
        let uneven = Tokens(
            queries: tokens.queries.scalingOneElement(by: 1 / 20),
            keys: tokens.keys.scalingOneElement(by: 20), values: tokens.values)
        let exact = try H2OStorage.dense.makeCache(maxSize: 64).attend(uneven)

        let lost = try [H2OStorage.fourBits, .rotatedFourBits].map { storage -> Float in
            let output = try storage.makeCache(maxSize: 64).attend(uneven)
            return zip(output, exact).reduce(0) { sum, pair in sum + abs(pair.0 - pair.1) }
        }

        XCTAssertLessThan(lost[1], lost[0] * 0.8)
    }

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
    /// With the same element of each vector multiplied by a factor.
    fileprivate func scalingOneElement(by factor: Float) -> MLXArray {
        let values = asArray(Float.self).enumerated().map { index, value in
            index % dim(-1) == 7 ? value * factor : value
        }
        return MLXArray(values, shape)
    }
}
