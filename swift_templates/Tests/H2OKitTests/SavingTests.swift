import H2OKit
import MLXLMCommon
import XCTest

final class SavingTests: XCTestCase {
    func testAnyCacheTakesOverTheStateOfAnother() throws {
        let cache = try H2OKVCache(maxSize: 16)
        cache.attend(Tokens(40, seed: 1))
        var other: any KVCache = try H2OKVCache(maxSize: 32)

        other.state = cache.state
        other.metaState = cache.metaState

        XCTAssertEqual(other.offset, 40)
        XCTAssertEqual(other.maxSize, 16)
    }

    func testOnlyTheRowsInUseAreSaved() throws {
        let recent = try H2OConfiguration(maxSize: 16).recentBudget
        for storage in H2OStorage.allCases {
            for tokens in [3, 12, 40] {
                let cache = try storage.makeCache(maxSize: 16)
                cache.attend(Tokens(tokens, seed: 1))

                let buffers = cache.state.dropLast(5)

                // MLX 0.31 saves no empty array: a row of zeros stands for an empty pool.
                let isPoolEmpty = buffers.count == 2 && tokens <= recent
                let rows = buffers.map { $0.dim(2) }.reduce(0, +)
                XCTAssertEqual(
                    rows, cache.length + (isPoolEmpty ? 1 : 0), "\(storage), \(tokens) tokens")
                XCTAssertTrue(buffers.allSatisfy { $0.dim(2) > 0 }, "\(storage), \(tokens)")
            }
        }
    }

    func testAnEmptyCacheIsSavedToo() throws {
        let cache = try H2OKVCache(maxSize: 16, sinkSize: 2)

        let restored = try H2OKVCache(state: cache.state, metaState: cache.metaState)

        XCTAssertEqual(restored.offset, 0)
        XCTAssertEqual(restored.configuration.sinkSize, 2)
    }

    func testAnotherKindOfCacheIsRefusedByItsFormat() throws {
        let cache = try H2OKVCache(maxSize: 16)
        cache.attend(Tokens(7, seed: 1))

        let others = [[""], ["h2o.dense.2", "7", "7", "0", "{}"], ["4", "16", "256", "7", "7"]]
        for metaState in others {
            let restore = { try H2OKVCache(state: cache.state, metaState: metaState) }

            XCTAssertThrowsError(try restore()) { error in
                XCTAssertEqual(
                    error as? H2OCacheError,
                    .otherFormat(found: metaState[0], known: ["h2o.dense.1"]))
                XCTAssertEqual(
                    error.localizedDescription,
                    "What was read has the format \"\(metaState[0])\"; this release reads "
                        + "\"h2o.dense.1\". Make it again with this release.")
            }
        }
    }

    func testArraysThatDoNotFitAreRefused() throws {
        let cache = try H2OKVCache(maxSize: 16)
        cache.attend(Tokens(7, seed: 1))
        let metaState = cache.metaState
        cache.attend(Tokens(1, seed: 2))

        let state = cache.state

        for state in [[], Array(state.prefix(2)), state, state.reversed()] {
            XCTAssertThrowsError(try H2OKVCache(state: state, metaState: metaState)) { error in
                XCTAssertTrue(error.localizedDescription.contains("is damaged"), "\(error)")
            }
        }
    }
}
