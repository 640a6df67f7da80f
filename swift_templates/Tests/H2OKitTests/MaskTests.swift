import H2OKit
import MLX
import XCTest

final class MaskTests: XCTestCase {
    func testOneTokenNeedsNoMask() throws {
        let cache = try H2OKVCache(maxSize: 16)
        cache.attend(Tokens(30, seed: 1))

        guard case .none = cache.makeMask(n: 1, windowSize: nil, returnArray: true) else {
            return XCTFail("one token sees all rows")
        }
    }

    func testSeveralTokensAreCausal() throws {
        let cache = try H2OKVCache(maxSize: 16)

        guard case .causal = cache.makeMask(n: 5, windowSize: nil, returnArray: false) else {
            return XCTFail("several tokens see what came before them")
        }
    }

    func testAMaskArrayCountsRowsAndNotPositions() throws {
        let cache = try H2OKVCache(maxSize: 16)
        cache.attend(Tokens(30, seed: 1))

        let mask = try XCTUnwrap(cache.makeMask(n: 3, windowSize: nil, returnArray: true).mask)

        XCTAssertEqual(mask.shape, [3, 19])
        let seen = mask.asArray(Bool.self)
        XCTAssertEqual(seen[..<19], Array(repeating: true, count: 17)[...] + [false, false])
    }

    func testAMaskAfterAnUpdateCountsTheRowsThatWillRemain() throws {
        let cache = try H2OKVCache(maxSize: 16)
        let tokens = Tokens(30, seed: 1)
        _ = cache.update(keys: tokens.keys, values: tokens.values)

        let mask = try XCTUnwrap(cache.makeMask(n: 3, windowSize: nil, returnArray: true).mask)

        XCTAssertEqual(mask.shape, [3, 19])
    }

    func testBeforeAnEvictionAWindowIsServed() throws {
        let cache = try H2OKVCache(maxSize: 16)
        cache.attend(Tokens(8, seed: 1))

        let mask = try XCTUnwrap(cache.makeMask(n: 2, windowSize: 4, returnArray: false).mask)

        let expected = (0 ..< 10).map { (5 ... 8).contains($0) }
        XCTAssertEqual(Array(mask.asArray(Bool.self).prefix(10)), expected)
    }

    func testAMaskArrayAttendsLikeTheCausalMask() throws {
        let symbolic = try H2OKVCache(maxSize: 16)
        let array = try H2OKVCache(maxSize: 16)
        for cache in [symbolic, array] { cache.attend(Tokens(30, seed: 1)) }
        let tokens = Tokens(3, seed: 2)

        let outputs = zip([symbolic, array], [false, true]).map { cache, returnArray in
            cache.attend(
                queries: tokens.queries, keys: tokens.keys, values: tokens.values,
                scale: Heads.scale,
                mask: cache.makeMask(n: 3, windowSize: nil, returnArray: returnArray)
            ).asArray(Float.self)
        }

        XCTAssertEqual(largestDifference(outputs[0], outputs[1]), 0, accuracy: 1e-5)
        XCTAssertEqual(symbolic.keptPositions, array.keptPositions)
    }
}
