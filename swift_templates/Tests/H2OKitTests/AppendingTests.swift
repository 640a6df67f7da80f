import H2OKit
import MLX
import XCTest

final class AppendingTests: XCTestCase {
    func testAnEmptyCacheHoldsNothing() throws {
        let cache = try H2OKVCache(maxSize: 16)

        XCTAssertEqual(cache.offset, 0)
        XCTAssertEqual(cache.length, 0)
        XCTAssertEqual(cache.maxSize, 16)
        XCTAssertNil(cache.scores)
        XCTAssertNil(cache.positions)
        XCTAssertTrue(cache.state.isEmpty)
        XCTAssertTrue(cache.innerState().isEmpty)
    }

    func testRowsAreAppendedUntilTheCacheIsFull() throws {
        let cache = try H2OKVCache(maxSize: 16)

        cache.attend(Tokens(5, seed: 1))
        cache.attendOneByOne(11, seed: 2)

        XCTAssertEqual(cache.length, 16)
        XCTAssertEqual(cache.keptPositions, [Array(0 ..< 16), Array(0 ..< 16)])
        XCTAssertTrue(cache.isTrimmable)
    }

    func testACacheThatIsNotFullAttendsLikePlainAttention() throws {
        let cache = try H2OKVCache(maxSize: 16)
        let tokens = Tokens(12, seed: 3)

        let routed = cache.attend(tokens)

        let plain = MLXFast.scaledDotProductAttention(
            queries: tokens.queries, keys: tokens.keys, values: tokens.values,
            scale: Heads.scale, mask: .causal)
        XCTAssertEqual(largestDifference(routed, plain.asArray(Float.self)), 0, accuracy: 1e-5)
    }

    func testOneTokenAtATimeAttendsLikeOneChunk() throws {
        let oneByOne = try H2OKVCache(maxSize: 16)
        let chunked = try H2OKVCache(maxSize: 16)
        let tokens = Tokens(12, seed: 4)

        let last = (0 ..< 12).map { token in
            oneByOne.attend(
                queries: tokens.queries[.ellipsis, token ..< token + 1, 0...],
                keys: tokens.keys[.ellipsis, token ..< token + 1, 0...],
                values: tokens.values[.ellipsis, token ..< token + 1, 0...],
                scale: Heads.scale, mask: .none)
        }.last
        let all = chunked.attend(
            queries: tokens.queries, keys: tokens.keys, values: tokens.values,
            scale: Heads.scale, mask: .causal)

        let expected = all[.ellipsis, 11 ..< 12, 0...].asArray(Float.self)
        XCTAssertEqual(
            largestDifference(try XCTUnwrap(last).asArray(Float.self), expected), 0, accuracy: 1e-5)
        XCTAssertEqual(oneByOne.keptPositions, chunked.keptPositions)
        let scores = try XCTUnwrap(oneByOne.scores).asArray(Float.self)
        let chunkedScores = try XCTUnwrap(chunked.scores).asArray(Float.self)
        XCTAssertEqual(largestDifference(scores, chunkedScores), 0, accuracy: 1e-5)
    }
}
