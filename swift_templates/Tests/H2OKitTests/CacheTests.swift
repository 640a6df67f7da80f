import H2OKit
import MLX
import MLXLMCommon
import XCTest

/// Tests the parts that Swift adds to the core's cache: masks, trimming, copies, saved strings and
/// the methods that upstream calls. Parity compares outputs and kept positions with Python.
final class CacheTests: XCTestCase {
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

    func testTheOffsetCountsEvictedTokensToo() throws {
        let cache = try H2OKVCache(maxSize: 16)

        cache.attend(Tokens(30, seed: 1))
        cache.attendOneByOne(5, seed: 2)

        XCTAssertEqual(cache.offset, 35)
        XCTAssertEqual(cache.length, 16)
        guard case .scalar(35) = cache.ropeOffset else {
            return XCTFail("the position for RoPE is \(cache.ropeOffset)")
        }
    }

    func testAMaskCountsTheRowsThatWillRemainAndNotPositions() throws {
        let tokens = Tokens(30, seed: 1)
        let (attended, updated) = (try H2OKVCache(maxSize: 16), try H2OKVCache(maxSize: 16))
        attended.attend(tokens)
        _ = updated.update(keys: tokens.keys, values: tokens.values)

        for cache in [attended, updated] {
            let mask = try XCTUnwrap(cache.makeMask(n: 3, windowSize: nil, returnArray: true).mask)
            XCTAssertEqual(mask.shape, [3, 19])
            let visible = mask.asArray(Bool.self)
            XCTAssertEqual(visible[..<19], Array(repeating: true, count: 17)[...] + [false, false])
            guard case .none = cache.makeMask(n: 1, windowSize: nil, returnArray: true) else {
                return XCTFail("one token sees all rows")
            }
        }
    }

    func testBeforeAnEvictionAWindowIsServed() throws {
        let cache = try H2OKVCache(maxSize: 16)
        cache.attend(Tokens(8, seed: 1))

        let mask = try XCTUnwrap(cache.makeMask(n: 2, windowSize: 4, returnArray: false).mask)

        let expected = (0 ..< 10).map { (5 ... 8).contains($0) }
        XCTAssertEqual(Array(mask.asArray(Bool.self).prefix(10)), expected)
    }

    func testAfterAnEvictionNothingIsDropped() throws {
        let cache = try H2OKVCache(maxSize: 16)
        cache.attend(Tokens(16, seed: 1))
        XCTAssertTrue(cache.isTrimmable)

        cache.attend(Tokens(1, seed: 2))

        XCTAssertFalse(cache.isTrimmable)
        XCTAssertEqual(cache.trim(2), 0)
        XCTAssertEqual(cache.offset, 17)
    }

    func testAStateStaysAsItWas() throws {
        let cache = try H2OKVCache(maxSize: 16)
        cache.attend(Tokens(30, seed: 1))

        let state = cache.state
        let before = state[0].asArray(Float.self)
        cache.attendOneByOne(20, seed: 3)

        XCTAssertEqual(state[0].asArray(Float.self), before)
        XCTAssertNotEqual(cache.state[0].asArray(Float.self), before)
    }

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

    func testAnyCacheTakesOverTheStateOfAnother() throws {
        let cache = try H2OKVCache(maxSize: 16)
        cache.attend(Tokens(40, seed: 1))
        var restored: any KVCache = try H2OKVCache(maxSize: 32)

        restored.state = cache.state
        restored.metaState = cache.metaState

        XCTAssertEqual(restored.offset, 40)
        XCTAssertEqual(restored.maxSize, 16)
    }

    func testAnEmptyCacheIsSavedToo() throws {
        let cache = try H2OKVCache(maxSize: 16, sinkSize: 2)

        let restored = try H2OKVCache(state: cache.state, metaState: cache.metaState)

        XCTAssertEqual(restored.offset, 0)
        XCTAssertEqual(restored.configuration.sinkSize, 2)
    }

    func testAnotherKindOfCacheIsRefusedByItsFormat() throws {
        let cache = try H2OKVCache(maxSize: 16)
        cache.attend(Tokens(7, seed: 1))

        let others = [[""], ["h2o.dense.1", "7", "7", "0", "{}"], ["4", "16", "256", "7", "7"]]
        for metaState in others {
            let restore = { try H2OKVCache(state: cache.state, metaState: metaState) }

            XCTAssertThrowsError(try restore()) { error in
                XCTAssertEqual(
                    error as? H2OCacheError,
                    .otherFormat(
                        found: metaState[0],
                        known: ["h2o.dense.2", "h2o.quantized.2", "h2o.mixed.2"]))
                XCTAssertEqual(
                    error.localizedDescription,
                    "the saved cache has the format \"\(metaState[0])\", but this release reads "
                        + "h2o.dense.2, h2o.quantized.2, h2o.mixed.2. Make the cache again from "
                        + "its prompt.")
            }
        }
    }
}
