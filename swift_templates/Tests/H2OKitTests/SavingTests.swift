import H2OKit
import MLXLMCommon
import XCTest

final class SavingTests: XCTestCase {
    func testAnyCacheTakesOverTheStateOfAnother() throws {
        let cache = try H2OKVCache(maxSize: 16)
        cache.attend(Tokens(40, seed: 1))
        var restored: any KVCache = try H2OKVCache(maxSize: 32)

        restored.state = cache.state
        restored.metaState = cache.metaState

        XCTAssertEqual(restored.offset, 40)
        XCTAssertEqual(restored.maxSize, 16)
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
                    .otherFormat(
                        found: metaState[0],
                        known: ["h2o.dense.1", "h2o.quantized.1", "h2o.mixed.1"]))
                XCTAssertEqual(
                    error.localizedDescription,
                    "The saved cache has the format \"\(metaState[0])\"; this release reads "
                        + "\"h2o.dense.1\", \"h2o.quantized.1\", \"h2o.mixed.1\". Make it again "
                        + "with this release.")
            }
        }
    }
}
