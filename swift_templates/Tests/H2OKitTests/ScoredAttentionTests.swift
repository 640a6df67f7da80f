import H2OKit
import MLX
import XCTest

final class ScoredAttentionTests: XCTestCase {
    func testScoredAttentionReturnsItsLogits() {
        let tokens = Tokens(3, seed: 1)

        let (output, scores) = MLXFast.scaledDotProductAttentionWithScores(
            queries: tokens.queries, keys: tokens.keys, values: tokens.values,
            scale: Heads.scale, mask: .causal)

        let plain = MLXFast.scaledDotProductAttention(
            queries: tokens.queries, keys: tokens.keys, values: tokens.values,
            scale: Heads.scale, mask: .causal)
        XCTAssertEqual(
            largestDifference(output.asArray(Float.self), plain.asArray(Float.self)), 0,
            accuracy: 1e-5)
        XCTAssertEqual(scores.shape, [Heads.queries * 3, 3])
        let first = scores.asArray(Float.self)
        let query = tokens.queries.asArray(Float.self).prefix(Heads.keyDim)
        let key = tokens.keys.asArray(Float.self).prefix(Heads.keyDim)
        XCTAssertEqual(
            first[0], Heads.scale * zip(query, key).reduce(0) { $0 + $1.0 * $1.1 }, accuracy: 1e-5)
        XCTAssertEqual(first[1], -Float.greatestFiniteMagnitude)
    }

    func testAttentionOverPackedRowsEqualsThatOverWidenedOnes() throws {
        let tokens = Tokens(9, seed: 1)
        let cache = try H2OStorage.eightBits.makeCache(maxSize: 16)
        let (keys, values) = cache.update(keys: tokens.keys, values: tokens.values)
        // A key or a value with 8 bits has 8 words, a scale and a bias.
        let packed = cache.state.prefix(2).map { rows in
            (
                rows[.ellipsis, 0 ..< 8], rows[.ellipsis, 8 ..< 9].asFloats,
                rows[.ellipsis, 9 ..< 10].asFloats
            )
        }

        let (output, scores) = MLXFast.scaledDotProductAttentionQuantizedWithScores(
            queries: tokens.queries, quantizedKeys: packed[0], quantizedValues: packed[1],
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

extension MLXArray {
    /// The 32-bit words as floats with the same bits.
    fileprivate var asFloats: MLXArray {
        MLXArray(asArray(UInt32.self).map { Float(bitPattern: $0) }, shape)
    }
}
