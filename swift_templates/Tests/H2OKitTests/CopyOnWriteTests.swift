import H2OKit
import MLX
import XCTest

/// A step writes into the buffer in place unless somebody else holds it.
final class CopyOnWriteTests: XCTestCase {
    func testAStateStaysAsItWas() throws {
        let cache = try H2OKVCache(maxSize: 16)
        cache.attend(Tokens(30, seed: 1))

        let state = cache.state
        let before = state[0].asArray(Float.self)
        cache.attendOneByOne(20, seed: 3)

        XCTAssertEqual(state[0].asArray(Float.self), before)
        XCTAssertNotEqual(cache.state[0].asArray(Float.self), before)
    }

    func testTheInnerStateStaysAsItWas() throws {
        let cache = try H2OKVCache(maxSize: 16)
        cache.attend(Tokens(16, seed: 1))

        let scores = cache.innerState()[0]
        let before = scores.asArray(Float.self)
        cache.attendOneByOne(20, seed: 3)

        XCTAssertEqual(scores.asArray(Float.self), before)
    }

    func testStepsThatAreEvaluatedTogetherEqualStepsOneByOne() throws {
        let oneByOne = try H2OKVCache(maxSize: 16)
        let together = try H2OKVCache(maxSize: 16)
        for cache in [oneByOne, together] { cache.attend(Tokens(20, seed: 1)) }

        let expected = oneByOne.attendOneByOne(12, seed: 2)
        let lazy = (0 ..< 12).map { step in
            let token = Tokens(1, seed: 2 + UInt64(step))
            return together.attend(
                queries: token.queries, keys: token.keys, values: token.values,
                scale: Heads.scale, mask: .none)
        }

        XCTAssertEqual(together.keptPositions, oneByOne.keptPositions)
        XCTAssertEqual(lazy.map { $0.asArray(Float.self) }, expected)
    }
}
