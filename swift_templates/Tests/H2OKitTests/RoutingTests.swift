import H2OKit
import MLX
import MLXLMCommon
import XCTest

final class RoutingTests: XCTestCase {
    func testAttentionWithCacheUpdateAsksTheCacheToAttend() throws {
        let cache = try H2OKVCache(maxSize: 16)
        let tokens = Tokens(6, seed: 1)

        let output = attentionWithCacheUpdate(
            queries: tokens.queries, keys: tokens.keys, values: tokens.values, cache: cache,
            scale: Heads.scale, mask: .causal)

        let plain = attentionWithCacheUpdate(
            queries: tokens.queries, keys: tokens.keys, values: tokens.values, cache: nil,
            scale: Heads.scale, mask: .causal)
        XCTAssertEqual(
            largestDifference(output.asArray(Float.self), plain.asArray(Float.self)), 0,
            accuracy: 1e-5)
        let scores = try XCTUnwrap(cache.scores).asArray(Float.self)
        XCTAssertTrue(scores.prefix(6).allSatisfy { $0 > 0 }, "scores \(scores)")
    }

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

    func testShapesThatDoNotFitAreAnErrorAndNotACrash() throws {
        let cache = try H2OKVCache(maxSize: 16)
        let tokens = Tokens(4, seed: 1)

        XCTAssertThrowsError(
            try withError {
                cache.attend(
                    queries: tokens.queries, keys: tokens.keys,
                    values: tokens.values[.ellipsis, ..<2, 0...], scale: 1, mask: .causal)
            }
        ) { error in
            XCTAssertTrue("\(error)".contains("all but the head dim must agree"), "\(error)")
        }
    }
}
