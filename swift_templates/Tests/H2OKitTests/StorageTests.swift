import H2OKit
import MLX
import MLXLMCommon
import XCTest

/// Tests that must pass with every storage of rows.
final class StorageTests: XCTestCase {
    func testACacheIsSavedAndCopiedBetweenUpdateAndAttention() throws {
        for storage in H2OStorage.allCases {
            let cache = try storage.makeCache(maxSize: 16)
            let tokens = Tokens(20, seed: 1)
            _ = cache.update(keys: tokens.keys, values: tokens.values)

            let restored = try H2OKVCache(
                state: cache.state, metaState: cache.metaState)
            let copy = try XCTUnwrap(cache.copy() as? H2OKVCache)

            let expected = cache.attendOneByOne(3, seed: 2)
            for twin in [restored, copy] {
                XCTAssertEqual(twin.length, 20, "\(storage)")
                XCTAssertEqual(twin.attendOneByOne(3, seed: 2), expected, "\(storage)")
            }
        }
    }

    func testAModelThatAttendsItselfGetsTheRowsInUse() throws {
        for storage in H2OStorage.allCases {
            for count in [1, 5, 20] {
                let cache = try storage.makeCache(maxSize: 16)
                let routed = try storage.makeCache(maxSize: 16)
                for filled in [cache, routed] { filled.attend(Tokens(30, seed: 1)) }
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
}
