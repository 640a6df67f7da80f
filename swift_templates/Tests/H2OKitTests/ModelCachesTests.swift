import H2OKit
import MLXLMCommon
import XCTest

final class ModelCachesTests: XCTestCase {
    private func configuration() throws -> H2OConfiguration { try H2OConfiguration(maxSize: 16) }

    private func makeCaches(
        for model: TinyModel, budgets: H2OBudgets? = nil, storage: H2OStorage = .sixteenBits
    ) throws -> [any KVCache] {
        try H2OCaches(
            configuration: configuration(), storage: storage, groupSize: 32, budgets: budgets
        ).makeCaches(for: model)
    }

    private func isSame(_ a: any KVCache, _ b: any KVCache) -> Bool {
        a as AnyObject === b as AnyObject
    }

    func testPlainCachesAreReplacedAndOthersKept() throws {
        let rotating = RotatingKVCache(maxSize: 8)
        let recurrent = MambaCache()
        let model = TinyModel { [rotating, KVCacheSimple(), recurrent, KVCacheSimple()] }

        let caches = try makeCaches(for: model)

        XCTAssertTrue(isSame(caches[0], rotating))
        XCTAssertTrue(caches[1] is H2OKVCache)
        XCTAssertTrue(isSame(caches[2], recurrent))
        XCTAssertTrue(caches[3] is H2OKVCache)
        XCTAssertFalse(isSame(caches[1], caches[3]))
    }

    func testALayerWithSeveralCachesKeepsTheOthers() throws {
        let model = TinyModel {
            (0 ..< 2).map { _ in CacheList(MambaCache(), KVCacheSimple()) }
        }

        let caches = try makeCaches(for: model)

        let lists = try caches.map { try XCTUnwrap($0 as? CacheList) }
        XCTAssertTrue(lists.allSatisfy { $0[0] is MambaCache && $0[1] is H2OKVCache })
        XCTAssertFalse(isSame(lists[0][1], lists[1][1]))
    }

    func testEachStorageHasItsKind() throws {
        let model = TinyModel { [KVCacheSimple()] }
        for storage in H2OStorage.allCases {
            let caches = try makeCaches(for: model, storage: storage)

            XCTAssertEqual(caches.count, 1)
            let kind = try XCTUnwrap(caches[0] as? H2OKVCache).kind
            switch storage {
            case .sixteenBits: XCTAssertEqual(kind, .dense)
            case .eightBits, .keys8Values4, .fourBits: XCTAssertEqual(kind, .quantized)
            default: XCTAssertEqual(kind, .mixed)
            }
        }
    }

    func testAModelThatCannotWorkWithRowsMissingIsRefusedByName() throws {
        let model = Gemma2Model { [KVCacheSimple()] }

        XCTAssertThrowsError(try makeCaches(for: model)) { error in
            XCTAssertTrue(
                error.localizedDescription.hasPrefix(
                    "Gemma2Model cannot use an H2O cache: mlx-swift-lm makes its mask "),
                error.localizedDescription)
        }
    }

    func testAModelIsRefusedOnlyWithTheLayersThatMakeItUnfit() throws {
        let uniform = Exaone4Model { [KVCacheSimple()] }
        let sliding = Exaone4Model { [RotatingKVCache(maxSize: 8), KVCacheSimple()] }

        XCTAssertNoThrow(try makeCaches(for: uniform))
        XCTAssertThrowsError(try makeCaches(for: sliding))
    }

    func testAModelWithNothingToBoundIsRefusedByName() throws {
        let model = TinyModel { [MambaCache(), RotatingKVCache(maxSize: 8)] }

        XCTAssertThrowsError(try makeCaches(for: model)) { error in
            XCTAssertEqual(
                error.localizedDescription,
                "TinyModel cannot use an H2O cache: it has MambaCache, RotatingKVCache and no "
                    + "plain KVCacheSimple to bound. Generate without H2O, or choose another "
                    + "model.")
        }
    }

    func testBudgetsAndRowsMayDifferFromLayerToLayer() throws {
        let model = TinyModel { [KVCacheSimple(), RotatingKVCache(maxSize: 8), KVCacheSimple()] }
        let budgets = H2OBudgets(layers: [
            .init(heavyBudget: 2, recentBudget: 6, maxSize: 12), nil, nil,
        ])

        let caches = try makeCaches(for: model, budgets: budgets, storage: .eightBits).evicting

        let first = caches[0].configuration
        XCTAssertEqual([first.heavyBudget, first.recentBudget, first.maxSize], [2, 6, 12])
        XCTAssertEqual(caches[1].configuration, try configuration())
        for (cache, rows) in zip(caches, [12, 16]) {
            cache.attendOneByOne(40, seed: 1)
            XCTAssertEqual(cache.keptPositions.map(\.count), [rows, rows])
        }
    }

    func testBudgetsOfAnotherModelAreRefused() throws {
        let model = TinyModel { [KVCacheSimple(), RotatingKVCache(maxSize: 8)] }
        let layer = H2OBudgets.Layer(heavyBudget: 2, recentBudget: 10)
        for (layers, text) in [
            (
                [layer],
                "layers must have 2 entries for TinyModel, and has 1. Write one entry per cache, "
                    + "null for the common budgets."
            ),
            (
                [nil, layer],
                "layers of the H2O budgets names layer 1, but TinyModel has H2O caches only in the "
                    + "layers 0. Name only some of these layers."
            ),
            (
                [.init(heavyBudget: 9, recentBudget: 9), nil],
                "layers[0] of the H2O budgets: "
                    + "sink_size + heavy_budget + recent_budget = 4 + 9 + 9 = 22 is more than "
                    + "max_size = 16. Lower a budget or raise max_size."
            ),
        ] as [([H2OBudgets.Layer?], String)] {
            XCTAssertThrowsError(
                try makeCaches(for: model, budgets: H2OBudgets(layers: layers))
            ) { error in
                XCTAssertEqual(error.localizedDescription, text)
            }
        }
    }
}
