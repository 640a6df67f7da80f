import H2OKit
import MLX
import MLXLMCommon
import XCTest

/// Tests that tokens read evicted tokens from the archive.
final class RecallTests: FolderTestCase {
    private func caches() throws -> [H2OKVCache] {
        let configuration = try H2OConfiguration(
            maxSize: 48, recentBudget: 8, recall: H2ORecall(ask: 6, reach: 4, archiveBits: 4))
        return try H2OStorage.allCases.map { try $0.makeCache(configuration, groupSize: 32) }
    }

    func testAnEvictedTokenIsReadByAPromptADraftAndAGeneratedTokenThatAskForIt() throws {
        for (count, read) in [(12, 192), (6, 6 * 4), (1, 4)] {
            for cache in try caches() {
                cache.attend(Fact.text)
                cache.attendOneByOne(60, seed: 2)
                XCTAssertFalse(cache.keepsTheFact)
                let before = try XCTUnwrap(cache.recalled?.reads)

                let answer = cache.attend(Fact.question(count))

                XCTAssertEqual(answer.suffix(Heads.valueDim).max() ?? 0, Fact.value, accuracy: 0.5)
                XCTAssertFalse(cache.keepsTheFact, "no row moves")
                XCTAssertEqual(cache.length, 48)
                let recalled = try XCTUnwrap(cache.recalled)
                XCTAssertEqual(recalled.reads - before, Heads.kv * read)
                XCTAssertGreaterThan(recalled.archiveBytes, recalled.sketchBytes)
                XCTAssertGreaterThan(recalled.sketchBytes, 0)
            }
        }
    }

    func testACopyAndASavedCacheGoOnAsTheirOriginal() throws {
        let file = folder.appending(path: "caches.safetensors")
        for cache in try caches() {
            cache.attend(Tokens(300, seed: 1))
            cache.attendOneByOne(70, seed: 2)
            let copies = try [cache as any KVCache].copied()
            try H2OCacheFile.save([cache], to: file)
            let twins = try (copies + H2OCacheFile.load(from: file).caches).evicting
            XCTAssertEqual(twins.count, 2)

            for next in twins + [cache] { next.attend(Fact.text) }
            let expected = [6, 1].map { cache.attend(Fact.question($0)) }

            for twin in twins {
                XCTAssertEqual([6, 1].map { twin.attend(Fact.question($0)) }, expected)
                XCTAssertEqual(twin.keptPositions, cache.keptPositions)
                XCTAssertEqual(twin.recalled?.archiveBytes, cache.recalled?.archiveBytes)
                XCTAssertEqual(twin.metaState, cache.metaState)
            }
        }
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
private enum Fact {
    static let value: Float = 3
    static let position = 90

    static var text: Tokens {
        let before = Tokens(180, seed: 11)
        return Tokens(
            queries: before.queries,
            keys: before.keys.replacing([position]) { $0 % 4 == 0 ? 1 : 0 },
            values: before.values.replacing([position]) { _ in value })
    }

    static func question(_ count: Int) -> Tokens {
        let after = Tokens(count, seed: 12)
        return Tokens(
            queries: after.queries.replacing(Array(0 ..< count)) { $0 % 4 == 0 ? 16 : 0 },
            keys: after.keys, values: after.values)
    }
}

extension H2OKVCache {
    /// Whether a head has the fact's row, if the cache began with the text.
    fileprivate var keepsTheFact: Bool { keptPositions.contains { $0.contains(Fact.position) } }
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
