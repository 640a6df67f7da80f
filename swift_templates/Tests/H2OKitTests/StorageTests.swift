import H2OKit
import MLX
import MLXLMCommon
import XCTest

/// What holds of a cache however its rows are stored.
final class StorageTests: XCTestCase {
    func testSinksAndRecentTokensAreKept() throws {
        for storage in H2OStorage.allCases {
            let cache = try storage.makeCache(maxSize: 16, heavyBudget: 6, recentBudget: 6)

            cache.attend(Tokens(20, seed: 1))
            cache.attendOneByOne(20, seed: 2)

            XCTAssertEqual(cache.offset, 40, "\(storage)")
            XCTAssertEqual(cache.length, 16, "\(storage)")
            for positions in cache.keptPositions {
                XCTAssertEqual(Set(positions).count, 16, "\(storage)")
                XCTAssertEqual(positions.prefix(4), [0, 1, 2, 3], "\(storage)")
                XCTAssertEqual(positions.suffix(6), [34, 35, 36, 37, 38, 39], "\(storage)")
            }
        }
    }

    func testOutputsAreCloseToThoseOfDenseRows() throws {
        let dense = try H2OKVCache(maxSize: 64)
        let expected = dense.attend(Tokens(50, seed: 1))

        for (storage, allowed) in [
            (H2OStorage.eightBits, Float(0.02)), (.keys8Values4, 0.3), (.fourBits, 0.4),
            (.rotatedFourBits, 0.4), (.recent16Heavy8, 0.02), (.recent16Heavy4, 0.4),
            (.recent8Heavy4, 0.4),
        ] {
            let output = try storage.makeCache(maxSize: 64).attend(Tokens(50, seed: 1))
            XCTAssertLessThan(largestDifference(output, expected), allowed, "\(storage)")
        }
    }

    func testACopyGoesOnLikeTheOriginalAndLeavesItAlone() throws {
        for storage in H2OStorage.allCases {
            let cache = try storage.makeCache(maxSize: 16)
            cache.attend(Tokens(20, seed: 1))
            let copy = try XCTUnwrap(cache.copy() as? any H2OScoreTracking)
            let twin = try XCTUnwrap(cache.copy() as? any H2OScoreTracking)
            let expected = twin.attendOneByOne(10, seed: 2)

            cache.attendOneByOne(30, seed: 50)

            XCTAssertEqual(copy.attendOneByOne(10, seed: 2), expected, "\(storage)")
            XCTAssertEqual(copy.keptPositions, twin.keptPositions, "\(storage)")
        }
    }

    func testARestoredCacheGoesOnIdentically() throws {
        for storage in H2OStorage.allCases {
            for tokens in [3, 16, 40] {
                let cache = try storage.makeCache(maxSize: 16)
                cache.attend(Tokens(tokens, seed: 1))

                let restored = try type(of: cache).init(
                    state: cache.state, metaState: cache.metaState)

                XCTAssertEqual(
                    restored.attendOneByOne(20, seed: 2), cache.attendOneByOne(20, seed: 2),
                    "\(storage), \(tokens) tokens")
                XCTAssertEqual(restored.metaState, cache.metaState, "\(storage)")
            }
        }
    }

    func testACacheIsSavedAndCopiedBetweenUpdateAndAttention() throws {
        for storage in H2OStorage.allCases {
            let cache = try storage.makeCache(maxSize: 16)
            let tokens = Tokens(20, seed: 1)
            _ = cache.update(keys: tokens.keys, values: tokens.values)

            let restored = try type(of: cache).init(
                state: cache.state, metaState: cache.metaState)
            let copy = try XCTUnwrap(cache.copy() as? any H2OScoreTracking)

            let expected = cache.attendOneByOne(3, seed: 2)
            for each in [restored, copy] {
                XCTAssertEqual(each.length, 20, "\(storage)")
                XCTAssertEqual(each.attendOneByOne(3, seed: 2), expected, "\(storage)")
            }
        }
    }

    func testOneCacheReadsTheStateOfAnotherClassNowhere() throws {
        let caches = try [H2OStorage.dense, .eightBits, .recent16Heavy8].map {
            try $0.makeCache(maxSize: 16)
        }
        for cache in caches { cache.attend(Tokens(7, seed: 1)) }

        for one in caches {
            for other in caches where type(of: one) != type(of: other) {
                XCTAssertThrowsError(
                    try type(of: one).init(state: other.state, metaState: other.metaState)
                ) { error in
                    XCTAssertEqual(
                        error as? H2OCacheError,
                        .otherFormat(
                            found: type(of: other).format, known: [type(of: one).format]))
                }
            }
        }
    }

    func testAModelThatAttendsItselfGetsTheRowsInUse() throws {
        for storage in H2OStorage.allCases {
            for count in [1, 5, 20] {
                let cache = try storage.makeCache(maxSize: 16)
                let routed = try storage.makeCache(maxSize: 16)
                for each in [cache, routed] { each.attend(Tokens(30, seed: 1)) }
                let tokens = Tokens(count, seed: 2)

                let (keys, values) = cache.update(keys: tokens.keys, values: tokens.values)
                let output = MLXFast.scaledDotProductAttention(
                    queries: tokens.queries, keys: keys, values: values, scale: Heads.scale,
                    mask: count > 1 ? .causal : .none)

                XCTAssertLessThan(
                    largestDifference(output.asArray(Float.self), routed.attend(tokens)), 1e-5,
                    "\(storage), \(count) tokens")
                cache.settle()
                XCTAssertEqual(cache.length, 16, "\(storage)")
            }
        }
    }

    func testRowsHandedOutStayAsTheyWere() throws {
        for storage in H2OStorage.allCases {
            let cache = try storage.makeCache(maxSize: 16)
            let twin = try storage.makeCache(maxSize: 16)
            for each in [cache, twin] { each.attend(Tokens(30, seed: 1)) }
            let token = Tokens(1, seed: 2)
            let expected = twin.update(keys: token.keys, values: token.values).0

            let (keys, _) = cache.update(keys: token.keys, values: token.values)
            let evaluated = expected.asArray(Float.self)
            cache.attendOneByOne(20, seed: 3)

            XCTAssertEqual(keys.asArray(Float.self), evaluated, "\(storage)")
        }
    }

    func testTheOutputHasTheQueriesDtype() throws {
        for storage in H2OStorage.allCases {
            for dtype in [DType.float32, .float16, .bfloat16] {
                let cache = try storage.makeCache(maxSize: 16)
                let tokens = Tokens(20, seed: 1)

                let output = attentionWithCacheUpdate(
                    queries: tokens.queries.asType(dtype), keys: tokens.keys.asType(dtype),
                    values: tokens.values.asType(dtype), cache: cache, scale: Heads.scale,
                    mask: .causal)

                XCTAssertEqual(output.dtype, dtype, "\(storage)")
                XCTAssertEqual(output.shape, [1, Heads.queries, 20, Heads.valueDim])
                XCTAssertEqual(try XCTUnwrap(cache.scores).dtype, .float32)
            }
        }
    }
}
