import H2OKit
import MLX
import MLXLMCommon
import XCTest

/// Tests storages of rows.
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
                let (cache, routed) = (try storage.filledCache(30), try storage.filledCache(30))
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

    func testAGroupSizeThatThereIsNotIsRefused() throws {
        let configuration = try H2OConfiguration(maxSize: 16)

        XCTAssertThrowsError(try H2OStorage.eightBits.makeCache(configuration, groupSize: 48)) {
            XCTAssertEqual(
                $0.localizedDescription, "group_size must be 32, 64 or 128, got 48.")
        }
    }

    func testAGroupThatDoesNotDivideTheHeadDimIsAnErrorAndNotACrash() throws {
        let cache = try H2OStorage.eightBits.makeCache(H2OConfiguration(maxSize: 16))
        let tokens = Tokens(4, seed: 1)

        XCTAssertThrowsError(
            try withError {
                cache.attend(
                    queries: tokens.queries, keys: tokens.keys, values: tokens.values,
                    scale: Heads.scale, mask: .causal)
            })
    }

    func testRowsOfAnotherKindOrWithOtherBitsAreRefused() throws {
        let cache = try H2OStorage.heavy8Recent16.filledCache(5)
        let header = cache.metaState[0]
        for (name, value) in [("recent_bits", "0"), ("key_bits", "5"), ("rotated", "1")] {
            let changed = cache.header(with: name, value)
            XCTAssertNotEqual(changed, header)
            XCTAssertThrowsError(try H2OKVCache(state: cache.state, metaState: [changed])) {
                error in
                guard case .damaged? = error as? H2OCacheError else { return XCTFail("\(error)") }
            }
        }
    }
}
