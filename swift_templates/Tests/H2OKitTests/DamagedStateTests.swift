import H2OKit
import MLX
import XCTest

/// Saved caches that were damaged, or made to harm, are refused before anything is used.
final class DamagedStateTests: XCTestCase {
    private func saved(_ storage: H2OStorage) throws -> any H2OScoreTracking {
        let configuration = try H2OConfiguration(
            maxSize: 48, recentBudget: 8, recall: H2ORecall(ask: 4))
        let cache = try storage.makeCache(configuration, groupSize: 32)
        cache.attend(Tokens(60, seed: 1))
        cache.attend(Tokens(9, seed: 2))
        return cache
    }

    private func assertRefused(
        _ cache: any H2OScoreTracking, _ state: [MLXArray], _ strings: [String], _ what: String
    ) {
        XCTAssertThrowsError(
            try type(of: cache).init(state: state, metaState: strings), what
        ) { error in
            XCTAssertFalse(error.localizedDescription.isEmpty)
        }
    }

    func testStringsThatNoCacheHasAreRefused() throws {
        for storage in H2OStorage.allCases {
            let cache = try saved(storage)
            let (state, strings) = (cache.state, cache.metaState)
            for (index, text) in [
                (1, "4294967297"), (1, "99999999999999999999"), (1, "70"), (2, "47"), (3, "70"),
                (3, "-1"), (4, "{}"), (4, #"{"max_size": 48}"#), (4, #"{"max_size": 49}"#),
            ] {
                var changed = strings
                changed[index] = text
                assertRefused(cache, state, changed, "\(storage): \(text)")
            }
            for (name, number) in [
                ("bits", "5"), ("group_size", "99999999999"), ("first", "-1"), ("first", "70"),
                ("first", "1"), ("since", "-1"), ("since", "9223372036854775807"),
            ] {
                var changed = strings
                let last = changed.removeLast()
                changed.append(
                    last.replacing(try Regex("\"\(name)\":[0-9]+"), with: "\"\(name)\":\(number)"))
                XCTAssertNotEqual(changed, strings)
                assertRefused(cache, state, changed, "\(storage): \(name) \(number)")
            }
        }
    }

    func testArraysThatNoCacheHasAreRefused() throws {
        for storage in H2OStorage.allCases {
            let cache = try saved(storage)
            let (state, strings) = (cache.state, cache.metaState)
            let ledger = state.count - 8  // 6 of it and 2 of the archive are last
            func replaced(_ index: Int, _ array: MLXArray) -> [MLXArray] {
                var changed = state
                changed[ledger + index] = array
                return changed
            }
            let shape = state[ledger].shape
            let positions = state[ledger + 1].asArray(Int32.self)
            for (what, array) in [
                ("all the same", positions.map { _ in Int32(3) }),
                ("too large", positions.map { $0 + 60 }),
                ("negative", positions.map { -2 - $0 }),
            ] {
                assertRefused(cache, replaced(1, MLXArray(array, shape)), strings, what)
            }
            let scores = state[ledger].asArray(Float.self)
            for (what, index, array) in [
                ("integer scores", 0, state[ledger + 1]), ("float positions", 1, state[ledger]),
                ("NaN", 0, MLXArray(scores.map { _ in Float.nan }, shape)),
                ("victims", 4, MLXArray([Int32(48), 1 << 30], [1, 2])),
                ("a row less", 2, state[ledger + 2][.ellipsis, 0 ..< 47]),
                ("no one held", 5, state[ledger + 5][.ellipsis, 0 ..< 1]),
                ("a shorter archive", 6, state[ledger + 6][.ellipsis, 0 ..< 3, 0...]),
                ("another archive", 6, state[ledger + 7]),
            ] {
                assertRefused(cache, replaced(index, array), strings, "\(storage): \(what)")
            }
            assertRefused(cache, state.dropLast(), strings, "\(storage): half an archive")
            assertRefused(cache, state.dropLast(2), strings, "\(storage): no archive")
        }
    }
}
