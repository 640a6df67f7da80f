import H2OKit
import MLX
import XCTest

/// Calls of a layer's cache with wrong sizes are errors of MLX, and leave it as it was.
final class HostileCallTests: XCTestCase {
    private let formats: [MLXFast.H2ORowFormat] = [
        .dense, .init(keyBits: 8, valueBits: 4, groupSize: 32),
        .init(keyBits: 4, valueBits: 4, groupSize: 32, recentBits: 8),
    ]

    private let policy = MLXFast.H2OPolicy(checked: [
        "max_size": .integer(48), "recent_budget": .integer(8), "recall.ask": .integer(4),
    ])

    private func attend(
        _ cache: MLXFast.H2OLayerCache, _ queries: MLXArray, _ keys: MLXArray?,
        _ values: MLXArray?, mask: MLXFast.ScaledDotProductAttentionMaskMode = .causal
    ) throws -> [Float] {
        let out = try withError {
            cache.attend(
                queries: queries, keys: keys, values: values, scale: Heads.scale, mask: mask)
        }
        return out.asArray(Float.self)
    }

    /// Tokens that are not like those before, each in one way.
    private func misfits(_ tokens: Tokens) -> [(String, keys: MLXArray, values: MLXArray)] {
        let (keys, values) = (tokens.keys, tokens.values)
        func batch(_ array: MLXArray) -> MLXArray { concatenated([array, array], axis: 0) }
        return [
            ("fewer values", keys, values[.ellipsis, ..<2, 0...]),
            ("fewer keys", keys[.ellipsis, ..<2, 0...], values),
            ("a head", keys[0..., ..<1], values[0..., ..<1]),
            ("a head of keys", keys[0..., ..<1], values),
            ("shorter keys", keys[.ellipsis, ..<16], values),
            ("shorter values", keys, values[.ellipsis, ..<16]),
            ("no tokens", keys[.ellipsis, ..<0, 0...], values[.ellipsis, ..<0, 0...]),
            ("integers", keys.asType(.int32), values),
            ("three dimensions", keys.reshaped([2, -1, 32]), values),
            ("two sequences", batch(keys), batch(values)),
        ]
    }

    func testTokensOfOtherShapesAreRefusedAndChangeNothing() throws {
        let tokens = Tokens(9, seed: 3)
        for format in formats {
            let caches = (0 ..< 2).map { _ in
                MLXFast.H2OLayerCache(policy: policy, format: format)
            }
            for (seed, count) in [(1, 12), (2, 60)] {  // with free rows, then with recall
                let chunk = Tokens(count, seed: UInt64(seed))
                for cache in caches {
                    _ = try attend(cache, chunk.queries, chunk.keys, chunk.values)
                }
                let cache = caches[0]
                for (what, keys, values) in misfits(tokens) {
                    XCTAssertThrowsError(
                        try attend(cache, tokens.queries, keys, values), "\(format) \(what)")
                    XCTAssertThrowsError(
                        try withError { _ = cache.write(keys: keys, values: values) }, what)
                    XCTAssertEqual(cache.offset, caches[1].offset, what)
                    XCTAssertEqual(cache.waiting, 0, what)
                }
                let next = Tokens(9, seed: 5)
                let outputs = try caches.map {
                    try attend($0, next.queries, next.keys, next.values)
                }
                XCTAssertEqual(outputs[0], outputs[1])
            }
        }
    }

    func testQueriesAndMasksThatDoNotFitAreRefused() throws {
        let tokens = Tokens(60, seed: 1)
        for format in formats {
            for (what, queries, mask) in [
                ("fewer queries", tokens.queries[.ellipsis, ..<7, 0...], .causal),
                ("three heads", tokens.queries[0..., ..<3], .causal),
                ("shorter queries", tokens.queries[.ellipsis, ..<8], .causal),
                ("a narrow mask", tokens.queries, .array(MLXArray.ones([60, 59], dtype: .bool))),
                ("a mask of integers", tokens.queries, .array(MLXArray([Int32(1)], [1, 1]))),
            ] as [(String, MLXArray, MLXFast.ScaledDotProductAttentionMaskMode)] {
                let cache = MLXFast.H2OLayerCache(policy: policy, format: format)
                XCTAssertThrowsError(
                    try attend(cache, queries, tokens.keys, tokens.values, mask: mask),
                    "\(format) \(what)")
            }
        }
    }

    func testAnErrorHasItsCodeAndValues() throws {
        let cache = MLXFast.H2OLayerCache(policy: policy, format: .dense)
        XCTAssertThrowsError(try attend(cache, Tokens(1, seed: 1).queries, nil, nil))
        XCTAssertEqual(MLXFast.H2OError.last?.code, "attend_before_write")

        let saved = MLXFast.H2OSavedCache(
            offset: 5, length: 4, pending: 0, policy: policy, format: .dense, archive: nil,
            arrays: [])
        XCTAssertThrowsError(try MLXFast.H2OLayerCache(saved)) { error in
            let error = error as? MLXFast.H2OError
            XCTAssertEqual(error?.code, "damaged_header")
            XCTAssertEqual(error?.values["part"], "length")
            XCTAssertEqual(error?.values["found"], "4")
        }
        XCTAssertEqual(cache.offset, 0)
        XCTAssertNil(MLXFast.H2OError.last, "of the function that was called last")
    }

    func testAPolicyOfRecallAloneAndAFormatThatThereIsNotMakeNoCache() throws {
        let recall = try MLXFast.H2OPolicy(["recall.ask": .integer(4)])
        for (policy, format) in [
            (recall, .dense), (policy, .init(keyBits: 5, valueBits: 5)),
            (policy, .init(keyBits: 8, valueBits: 16)),
            (policy, .init(keyBits: 8, valueBits: 8, groupSize: 7)),
            (policy, .init(keyBits: 8, valueBits: 8, groupSize: 99_999_999_999)),
        ] as [(MLXFast.H2OPolicy, MLXFast.H2ORowFormat)] {
            XCTAssertThrowsError(
                try withError { _ = MLXFast.H2OLayerCache(policy: policy, format: format) })
        }
    }
}
