import H2OKit
import MLX
import MLXLMCommon
import XCTest

/// Tests that evicted rows come back when a prompt asks for them.
final class RecallTests: FolderTestCase {
    private func configuration(rows: Int = 16, every: Int = 0) throws -> H2OConfiguration {
        try H2OConfiguration(
            maxSize: 48, recentBudget: 8, novelty: 0,
            recall: H2ORecall(
                rows: rows, spread: 2, before: 0, threshold: 0, ask: 4, every: every))
    }

    private func caches(_ configuration: H2OConfiguration) throws -> [H2OKVCache] {
        try H2OStorage.allCases.map { try $0.makeCache(configuration, groupSize: 32) }
    }

    /// The positions that a recall chose, for each KV head.
    private func held(_ cache: H2OKVCache) throws -> [[Int]] {
        let positions = try XCTUnwrap(cache.positions).asArray(Int32.self)
        let isHeld = try XCTUnwrap(cache.held).asArray(Bool.self)
        return stride(from: 0, to: positions.count, by: 48).map { start in
            (start ..< start + 48).filter { isHeld[$0] }.map { Int(positions[$0]) }.sorted()
        }
    }

    func testAnEvictedTokenComesBackWithItsSuccessorsWhereAPromptAsksForIt() throws {
        for cache in try caches(configuration()) {
            let fact = Fact()
            cache.attend(fact.text)
            cache.attendOneByOne(60, seed: 2)
            let gone = Set(cache.keptPositions[0]).isDisjoint(with: fact.positions)
            XCTAssertTrue(gone, "\(cache.keptPositions[0])")

            let answer = cache.attend(fact.question)

            for positions in cache.keptPositions {
                XCTAssertTrue(Set(positions).isSuperset(of: fact.positions), "\(positions)")
            }
            XCTAssertEqual(answer.suffix(Heads.valueDim).max() ?? 0, Fact.value, accuracy: 0.5)
            XCTAssertEqual(cache.length, 48)
            XCTAssertGreaterThan(cache.recalled?.rows ?? 0, 0)
            XCTAssertGreaterThan(cache.recalled?.archiveBytes ?? 0, 0)
        }
    }

    /// The caches of a model with three layers, which choose together. They have read texts, of
    /// which the second layer's has a fact.
    private func joined(_ storage: H2OStorage) throws -> [H2OKVCache] {
        let recall = try H2ORecall(
            rows: 16, spread: 2, before: 0, threshold: 0, ask: 6, archiveBits: 4)
        let configuration = try H2OConfiguration(
            maxSize: 48, recentBudget: 8, novelty: 0, recall: recall)
        let model = TinyModel { [KVCacheSimple(), KVCacheSimple(), KVCacheSimple()] }
        let caches = try H2OCaches(
            configuration: configuration, storage: storage, groupSize: 32
        ).makeCaches(for: model).evicting
        for (layer, cache) in caches.enumerated() {
            cache.attend(layer == 1 ? Fact().text : Tokens(180, seed: UInt64(layer)))
        }
        return caches
    }

    func testOneChoiceServesAllLayersAndHeads() throws {
        for storage in H2OStorage.allCases {
            let caches = try joined(storage)
            for cache in caches { cache.attend(Fact().question) }

            for cache in caches { cache.attend(Tokens(1, seed: 40)) }

            let held = try caches.flatMap(held)
            XCTAssertEqual(Set(held).count, 1, "\(held)")
            XCTAssertTrue(Set(held[0]).isSuperset(of: Fact().positions), "\(held[0])")
        }
    }

    func testALoadedSetOfCachesChoosesTogetherToo() throws {
        let file = folder.appending(path: "caches.safetensors")
        for storage in H2OStorage.allCases {
            let caches = try joined(storage)
            try H2OCacheFile.save(caches, to: file)
            let sets = [
                try H2OCacheFile.load(from: file).caches, try [any KVCache](caches).copied(),
            ]

            let answers = caches.map { $0.attend(Fact().question) }
            let after = caches.map { $0.attend(Tokens(1, seed: 40)) }

            for set in sets.map(\.evicting) {
                XCTAssertEqual(set.map { $0.attend(Fact().question) }, answers)
                XCTAssertEqual(set.map { $0.attend(Tokens(1, seed: 40)) }, after)
                XCTAssertEqual(set.map(\.keptPositions), caches.map(\.keptPositions))
            }
        }
    }

    func testACopyAndASavedCacheGoOnAsTheirOriginal() throws {
        for cache in try caches(configuration(every: 3)) {
            cache.attend(Tokens(300, seed: 1))
            cache.attendOneByOne(70, seed: 2)
            let copy = try XCTUnwrap(cache.copy() as? H2OKVCache)
            let saved = try H2OKVCache(state: cache.state, metaState: cache.metaState)

            for next in [copy, saved, cache] { next.attend(Fact().text) }
            let question = Fact().question
            let expected = cache.attend(question)

            XCTAssertTrue(cache.metaState[0].contains("\narchive.since="), cache.metaState[0])
            for twin in [copy, saved] {
                XCTAssertEqual(twin.attend(question), expected)
                XCTAssertEqual(twin.keptPositions, cache.keptPositions)
                XCTAssertEqual(try held(twin), try held(cache))
                XCTAssertEqual(twin.metaState, cache.metaState)
            }
            XCTAssertEqual(try held(cache).map(\.count), [16, 16])
        }
    }

    func testMoreRowsThanARecallMayHoldAreWarnedOf() throws {
        let shrinks = "recall_rows_shrink"
        XCTAssertFalse(try configuration(rows: 16).warnings.contains { $0.code == shrinks })
        let text = try XCTUnwrap(
            configuration(rows: 45).warnings.first { $0.code == shrinks }?.text)
        XCTAssertTrue(text.hasPrefix("recall.rows = 45, but with max_size = 48"), text)
    }

    func testOnlyTheLayersThatAreNamedRecall() throws {
        let model = TinyModel { [KVCacheSimple(), KVCacheSimple(), KVCacheSimple()] }
        let recall = try H2ORecall(ask: 4)
        let all = try H2OConfiguration(maxSize: 48, recall: recall)
        let named = try H2OConfiguration(maxSize: 48, recall: H2ORecall(ask: 4, layers: [1]))
        func recalling(_ configuration: H2OConfiguration, _ budgets: H2OBudgets? = nil) throws
            -> [Bool]
        {
            try H2OCaches(configuration: configuration, budgets: budgets).makeCaches(for: model)
                .map { ($0 as? H2OKVCache)?.configuration.recall != nil }
        }
        let byBudgets = H2OBudgets(layers: [nil, nil, nil], recall: [0, 2])

        XCTAssertEqual(try recalling(all), [true, true, true])
        XCTAssertEqual(try recalling(named), [false, true, false])
        XCTAssertEqual(try recalling(all, byBudgets), [true, false, true])
        XCTAssertEqual(try recalling(named, byBudgets), [false, true, false])
        let none = try H2OConfiguration(maxSize: 48, recall: H2ORecall(layers: [3]))
        let noneByBudgets = H2OBudgets(layers: [nil, nil, nil], recall: [3])
        for (configuration, budgets, setting) in [
            (all, noneByBudgets, "recall of the H2O budgets"), (none, nil, "recall.layers"),
        ] {
            XCTAssertThrowsError(try recalling(configuration, budgets)) { error in
                XCTAssertEqual(
                    error as? H2OCacheError,
                    .layerKeepsOwnCache(
                        3, setting: setting, model: "TinyModel", evicting: [0, 1, 2]))
            }
        }
    }
}

/// A text with one token whose value differs from all others, and tokens that ask for this token's
/// key.
private struct Fact {
    static let value: Float = 3

    let text: Tokens
    let question: Tokens
    /// The token and the two after it.
    let positions = [90, 91, 92]

    init() {
        let (before, after) = (Tokens(180, seed: 11), Tokens(6, seed: 12))
        text = Tokens(
            queries: before.queries,
            keys: before.keys.replacing([90]) { $0 % 4 == 0 ? 1 : 0 },
            values: before.values.replacing([90]) { _ in Self.value })
        question = Tokens(
            queries: after.queries.replacing(Array(0 ..< 6)) { $0 % 4 == 0 ? 16 : 0 },
            keys: after.keys, values: after.values)
    }
}

extension MLXArray {
    /// Returns this array `[1, H, L, D]` with other elements for some of the L tokens.
    fileprivate func replacing(_ tokens: [Int], by element: (Int) -> Float) -> MLXArray {
        var values = asArray(Float.self)
        for head in 0 ..< dim(1) {
            for token in tokens {
                for index in 0 ..< dim(3) {
                    values[(head * dim(2) + token) * dim(3) + index] = element(index)
                }
            }
        }
        return MLXArray(values, shape)
    }
}
