import H2OKit
import XCTest

final class TrimmingTests: XCTestCase {
    func testTheNewestTokensAreDropped() throws {
        let cache = try H2OKVCache(maxSize: 16)
        cache.attend(Tokens(12, seed: 1))

        XCTAssertEqual(cache.trim(5), 5)

        XCTAssertEqual(cache.offset, 7)
        XCTAssertEqual(cache.length, 7)
        XCTAssertEqual(cache.keptPositions[0], Array(0 ..< 7))
    }

    func testATrimmedCacheGoesOnAsIfTheTokensHadNeverCome() throws {
        for storage in [H2OStorage.dense, .eightBits] {
            let trimmed = try storage.makeCache(maxSize: 16)
            let never = try storage.makeCache(maxSize: 16)
            let unscored = Tokens(5, seed: 9)
            for cache in [trimmed, never] { cache.attend(Tokens(7, seed: 1)) }

            _ = trimmed.update(keys: unscored.keys, values: unscored.values)
            XCTAssertEqual(trimmed.trim(5), 5)

            XCTAssertEqual(trimmed.attendOneByOne(20, seed: 3), never.attendOneByOne(20, seed: 3))
            XCTAssertEqual(trimmed.keptPositions, never.keptPositions)
            XCTAssertFalse(trimmed.isTrimmable)
        }
    }

    func testNoMoreIsDroppedThanThereIs() throws {
        let cache = try H2OKVCache(maxSize: 16)
        cache.attend(Tokens(3, seed: 1))

        XCTAssertEqual(cache.trim(10), 3)

        XCTAssertEqual(cache.offset, 0)
        XCTAssertTrue(cache.state.isEmpty)
        cache.attend(Tokens(4, seed: 2))
        XCTAssertEqual(cache.keptPositions[0], [0, 1, 2, 3])
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
}
