import MLX
import MLXLMCommon
import XCTest

@testable import H2OKit

/// Tests a cache that keeps every token in few bits, without scores and without a ledger.
final class FullCacheTests: XCTestCase {
    private let stored: [H2OStorage] = [.eightBits, .keys8Values4, .fourBits]

    private func filled(_ storage: H2OStorage) throws -> H2OKVCache {
        let cache = try storage.makeCache(H2OConfiguration.unbounded(), groupSize: 32)
        cache.attend(Tokens(300, seed: 1))
        return cache
    }

    func testItKeepsEveryTokenWithoutALedger() throws {
        for storage in stored {
            let cache = try filled(storage)

            cache.attendOneByOne(3, seed: 2)

            XCTAssertEqual([cache.offset, cache.length], [303, 303])
            XCTAssertNil(cache.maxSize)
            XCTAssertNil(cache.positions)
            XCTAssertEqual(cache.ledgerBytes, 0)
            XCTAssertEqual(cache.innerState().count, 1)
        }
    }

    func testItIsTrimmedCopiedAndRestored() throws {
        for storage in stored {
            let (cache, never) = (try filled(storage), try filled(storage))

            cache.attend(Tokens(20, seed: 9))
            XCTAssertTrue(cache.isTrimmable(after: 100_000))
            XCTAssertEqual(cache.trim(20), 20)
            let restored = try H2OKVCache(state: cache.state, metaState: cache.metaState)
            let twin = try XCTUnwrap(cache.copy() as? H2OKVCache)

            let expected = never.attendOneByOne(5, seed: 3)
            for other in [cache, restored, twin] {
                XCTAssertEqual(other.attendOneByOne(5, seed: 3), expected)
                XCTAssertEqual(other.offset, 305)
            }
        }
    }

    func testTheModelsOwnCachesKeepEverythingAsItIsComputed() throws {
        let own = KVCacheSimple()
        let caches = H2OCaches(configuration: try .unbounded())

        let made = try caches.makeCaches(for: TinyModel { [own] })

        XCTAssertTrue(made[0] as AnyObject === own)
    }

    func testBitsOfTheNewestTokensNeedABound() throws {
        let caches = H2OCaches(configuration: try .unbounded(), storage: .heavy8Recent16)

        XCTAssertThrowsError(try caches.makeCaches(for: TinyModel { [KVCacheSimple()] })) {
            XCTAssertTrue("\($0)".contains("recentWithoutBound"), "\($0)")
        }
    }
}
