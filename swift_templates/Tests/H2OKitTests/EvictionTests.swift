import H2OKit
import XCTest

final class EvictionTests: XCTestCase {
    func testNoMoreThanMaxSizeRowsAreKept() throws {
        let cache = try H2OKVCache(maxSize: 16)

        for step in 0 ..< 8 {
            cache.attend(Tokens(7, seed: UInt64(step)))
            cache.attend(Tokens(1, seed: UInt64(100 + step)))

            XCTAssertLessThanOrEqual(cache.length, 16)
            XCTAssertEqual(cache.state[0].dim(2), cache.length)
        }
        XCTAssertEqual(cache.length, 16)
    }

    func testTheOffsetCountsEvictedTokensToo() throws {
        let cache = try H2OKVCache(maxSize: 16)

        cache.attend(Tokens(30, seed: 1))
        cache.attendOneByOne(5, seed: 2)

        XCTAssertEqual(cache.offset, 35)
        XCTAssertEqual(cache.length, 16)
        guard case .scalar(35) = cache.ropeOffset else {
            return XCTFail("RoPE would turn the next token by \(cache.ropeOffset)")
        }
    }

    func testPinnedTokensAreKept() throws {
        let configuration = try H2OConfiguration(
            maxSize: 16, heavyBudget: 4, recentBudget: 4, pinned: [7 ..< 10])
        let cache = H2OKVCache(configuration: configuration)

        cache.attend(Tokens(20, seed: 1))
        cache.attendOneByOne(20, seed: 2)

        for positions in cache.keptPositions {
            XCTAssertTrue(Set(positions).isSuperset(of: [7, 8, 9]), "kept \(positions)")
        }
    }

    func testHeadsKeepDifferentTokens() throws {
        let cache = try H2OKVCache(maxSize: 16)

        cache.attend(Tokens(40, seed: 1))

        XCTAssertNotEqual(cache.keptPositions[0], cache.keptPositions[1])
    }
}
