import H2OKit
import XCTest

final class CopyingTests: XCTestCase {
    func testACopyGoesOnLikeTheOriginal() throws {
        let cache = try H2OKVCache(maxSize: 16)
        cache.attend(Tokens(20, seed: 1))
        let copy = try XCTUnwrap(cache.copy() as? H2OKVCache)

        XCTAssertEqual(copy.attendOneByOne(10, seed: 2), cache.attendOneByOne(10, seed: 2))
        XCTAssertEqual(copy.keptPositions, cache.keptPositions)
        XCTAssertEqual(copy.offset, cache.offset)
    }

    func testOriginalAndCopyDoNotWriteIntoEachOther() throws {
        let cache = try H2OKVCache(maxSize: 16)
        cache.attend(Tokens(20, seed: 1))
        let alone = cache.copy() as? H2OKVCache
        let copy = try XCTUnwrap(cache.copy() as? H2OKVCache)
        let expected = try XCTUnwrap(alone).attendOneByOne(10, seed: 2)

        cache.attendOneByOne(30, seed: 50)
        let fromCopy = copy.attendOneByOne(10, seed: 2)

        XCTAssertEqual(fromCopy, expected)
        XCTAssertEqual(cache.offset, 50)
        XCTAssertEqual(copy.offset, 30)
    }

    func testACopyOfAnUnattendedCacheIsUnattendedToo() throws {
        let cache = try H2OKVCache(maxSize: 16)
        let tokens = Tokens(20, seed: 1)
        _ = cache.update(keys: tokens.keys, values: tokens.values)

        let copy = try XCTUnwrap(cache.copy() as? H2OKVCache)

        XCTAssertEqual(copy.length, 20)
        XCTAssertEqual(copy.attendOneByOne(3, seed: 2), cache.attendOneByOne(3, seed: 2))
    }
}
