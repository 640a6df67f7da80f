import H2OKit
import MLX
import MLXLMCommon
import XCTest

/// Saved caches that were damaged, or made to harm.
final class HostileStateTests: XCTestCase {
    /// In the order of the ledger's arrays.
    private let contents: [(from: Int, name: String, value: Float)] = [
        (5, "scores", .nan), (5, "scores", -0.5), (4, "positions", 0),
        (4, "positions", 2_000_000_000), (3, "novelty", .infinity), (2, "key_sum", .nan),
        (1, "victim", -1), (1, "victim", 16),
    ]

    private let flat = MLXArray([Float(0)], [1])

    private func refuses(
        _ cache: any H2OScoreTracking, _ state: [MLXArray], _ metaState: [String], _ what: String
    ) {
        XCTAssertThrowsError(try type(of: cache).init(state: state, metaState: metaState), what) {
            guard case .damaged? = $0 as? H2OCacheError else { return XCTFail("\(what): \($0)") }
        }
    }

    private func filled(_ storage: H2OStorage) throws -> any H2OScoreTracking {
        let cache = try storage.makeCache(maxSize: 16)
        cache.attend(Tokens(40, seed: 1))
        return cache
    }

    func testContentsThatNoCacheHasAreRefused() throws {
        for storage in H2OStorage.allCases {
            let cache = try filled(storage)
            for (fromEnd, name, value) in contents {
                var state = cache.state
                let index = state.count - fromEnd
                let old = state[index]
                let count = old.shape.reduce(1, *)
                state[index] =
                    old.dtype == .int32
                    ? MLXArray(Array(repeating: Int32(value), count: count), old.shape)
                    : MLXArray(Array(repeating: value, count: count), old.shape)
                refuses(cache, state, cache.metaState, "\(storage) \(name) \(value)")
            }
        }
    }

    func testShapesThatContradictAreRefused() throws {
        for storage in H2OStorage.allCases {
            let cache = try filled(storage)
            for index in cache.state.indices {
                var state = cache.state
                state[index] = flat
                refuses(cache, state, cache.metaState, "\(storage) array \(index)")
                state[index] = cache.state[index][0..., ..<1]
                refuses(cache, state, cache.metaState, "\(storage) heads of array \(index)")
            }
            refuses(cache, Array(cache.state.dropLast()), cache.metaState, "\(storage)")
        }
    }

    func testCountsThatContradictAreRefused() throws {
        for storage in H2OStorage.allCases {
            let cache = try filled(storage)
            for (index, text) in [
                (1, "2147483647"), (1, "2147483648"), (1, "9223372036854775807"), (1, "-1"),
                (1, "15"), (2, "17"), (3, "41"), (3, "2147483646"), (3, "x"),
            ] {
                var metaState = cache.metaState
                metaState[index] = text
                refuses(cache, cache.state, metaState, "\(storage) string \(index) \(text)")
            }
        }
    }

    func testAPlainCacheWithoutItsShapesIsRefused() throws {
        let file = FileManager.default.temporaryDirectory.appending(
            path: "\(UUID().uuidString).safetensors")
        defer { try? FileManager.default.removeItem(at: file) }
        let keys = Tokens(5, seed: 1).keys
        for name in ["KVCache", "RotatingKVCache"] {
            for state in [["0.0": keys], ["0.0": flat, "0.1": flat]] {
                var header = ["2.0": name]
                for (j, text) in ["1", "8", "5", "5"].enumerated() { header["0.0.\(j)"] = text }
                try MLX.save(arrays: state, metadata: header, url: file)
                XCTAssertThrowsError(try H2OCacheFile.load(from: file))
            }
        }
    }
}
