import H2OKit
import MLX
import XCTest

/// Models that call `update(keys:values:)` and attend themselves.
final class UnroutedModelTests: XCTestCase {
    func testAllRowsInUseAreReturned() throws {
        let cache = try H2OKVCache(maxSize: 16)
        let tokens = Tokens(20, seed: 1)

        let (keys, values) = cache.update(keys: tokens.keys, values: tokens.values)

        XCTAssertEqual(keys.shape, tokens.keys.shape)
        XCTAssertEqual(keys.asArray(Float.self), tokens.keys.asArray(Float.self))
        XCTAssertEqual(values.asArray(Float.self), tokens.values.asArray(Float.self))
        XCTAssertEqual(cache.offset, 20)
    }

    func testAChunkIsEvictedFromAtTheNextWrite() throws {
        let cache = try H2OKVCache(maxSize: 16)
        let chunk = Tokens(20, seed: 1)
        let next = Tokens(1, seed: 2)

        _ = cache.update(keys: chunk.keys, values: chunk.values)
        XCTAssertEqual(cache.length, 20)
        let (keys, _) = cache.update(keys: next.keys, values: next.values)

        XCTAssertEqual(cache.length, 16)
        XCTAssertEqual(keys.dim(2), 16)
        XCTAssertEqual(cache.offset, 21)
    }

    func testWithoutNoveltySinksAndRecentTokensRemain() throws {
        let configuration = try H2OConfiguration(maxSize: 16, sinkSize: 4, novelty: 0)
        let cache = H2OKVCache(configuration: configuration)
        for (step, count) in [20, 1, 1, 9, 1].enumerated() {
            let tokens = Tokens(count, seed: UInt64(step))
            _ = cache.update(keys: tokens.keys, values: tokens.values)
        }

        cache.settle()

        let expected = Array(0 ..< 4) + Array(20 ..< 32)
        XCTAssertEqual(cache.keptPositions, [expected, expected])
        XCTAssertEqual(try XCTUnwrap(cache.scores).asArray(Float.self).max(), -1)
    }

    func testNoveltyKeepsTokensThatNobodyScored() throws {
        let cache = try H2OKVCache(maxSize: 16)
        let tokens = Tokens(40, seed: 1)
        _ = cache.update(keys: tokens.keys, values: tokens.values)

        cache.settle()

        let newest = Array(0 ..< 4) + Array(28 ..< 40)
        XCTAssertNotEqual(cache.keptPositions[0], newest)
        XCTAssertEqual(cache.keptPositions[0].count, 16)
    }
}
