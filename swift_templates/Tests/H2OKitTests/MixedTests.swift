import H2OKit
import MLX
import XCTest

final class MixedTests: XCTestCase {
    func testTwoPartsOfOnePrecisionEqualADenseCache() throws {
        let dense = try H2OKVCache(maxSize: 16)
        let mixed = try MixedH2OKVCache(maxSize: 16, heavyBits: 16, recentBits: 16)

        for (step, count) in [5, 20, 1, 1, 7, 1, 1].enumerated() {
            let tokens = Tokens(count, seed: UInt64(step))
            XCTAssertLessThan(
                largestDifference(mixed.attend(tokens), dense.attend(tokens)), 1e-5)
            XCTAssertEqual(mixed.keptPositions, dense.keptPositions)
        }
    }

    func testItsBitsCanBeAskedFor() throws {
        let cache = try MixedH2OKVCache(maxSize: 16, heavyBits: 4, recentBits: 8, groupSize: 32)

        XCTAssertEqual([cache.heavyBits, cache.recentBits, cache.groupSize], [4, 8, 32])
    }

    func testNothingIsTakenBack() throws {
        let cache = try MixedH2OKVCache(maxSize: 16, groupSize: 32)
        cache.attend(Tokens(5, seed: 1))

        XCTAssertFalse(cache.isTrimmable)
        XCTAssertEqual(cache.trim(2), 0)
        XCTAssertEqual(cache.offset, 5)
    }

    func testRowsOfAnotherKindAreRefused() throws {
        let cache = try MixedH2OKVCache(maxSize: 16, groupSize: 32)
        cache.attend(Tokens(5, seed: 1))
        var fields = cache.metaState
        fields[5] = try QuantizedH2OKVCache(maxSize: 16, groupSize: 32).metaState[5]
        let state = cache.state

        XCTAssertThrowsError(try MixedH2OKVCache(state: state, metaState: fields)) { error in
            XCTAssertTrue(error.localizedDescription.contains("another kind"), "\(error)")
        }
    }

    func testBitsThatThereAreNotAreRefused() {
        XCTAssertThrowsError(try MixedH2OKVCache(maxSize: 16, heavyBits: 3)) { error in
            XCTAssertEqual(
                error.localizedDescription,
                "heavy_bits must be 4, 8 or 16, got 3.")
        }
    }
}
