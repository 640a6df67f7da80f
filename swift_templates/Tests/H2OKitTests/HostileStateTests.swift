import H2OKit
import MLX
import MLXLMCommon
import XCTest

extension H2OKVCache {
    /// The text of the saved cache with another value in one line.
    func header(with name: String, _ value: String) -> String {
        metaState[0].split(separator: "\n", omittingEmptySubsequences: false)
            .map { $0.hasPrefix("\(name)=") ? "\(name)=\(value)" : String($0) }
            .joined(separator: "\n")
    }
}

/// Tests saved caches that are damaged or manipulated.
final class HostileStateTests: FolderTestCase {
    private let flat = MLXArray([Float(0)], [1])

    private func refuses(
        _ cache: H2OKVCache, _ state: [MLXArray], _ metaState: [String], _ what: String
    ) {
        XCTAssertThrowsError(try H2OKVCache(state: state, metaState: metaState), what) {
            guard case .damaged? = $0 as? H2OCacheError else { return XCTFail("\(what): \($0)") }
        }
    }

    func testArraysThatNoCacheHasAreRefused() throws {
        for storage in H2OStorage.allCases {
            let cache = try storage.filledCache()
            let state = cache.state
            for index in state.indices {
                var changed = state
                changed[index] = flat
                refuses(cache, changed, cache.metaState, "\(storage) array \(index)")
            }
            refuses(cache, state.dropLast(), cache.metaState, "\(storage)")
            // The ledger's scores, positions and victims.
            for (fromEnd, value) in [(3, Float.nan), (2, 2_000_000_000), (1, 16)] {
                let old = state[state.count - fromEnd]
                let values = [Float](repeating: value, count: old.shape.reduce(1, *))
                var changed = state
                changed[state.count - fromEnd] =
                    old.dtype == .int32
                    ? MLXArray(values.map { Int32($0) }, old.shape) : MLXArray(values, old.shape)
                refuses(cache, changed, cache.metaState, "\(storage) \(value)")
            }
        }
    }

    func testCountsThatContradictAreRefused() throws {
        for storage in H2OStorage.allCases {
            let cache = try storage.filledCache()
            for (name, text) in [
                ("offset", "2147483647"), ("offset", "2147483648"),
                ("offset", "9223372036854775807"), ("offset", "-1"), ("offset", "15"),
                ("length", "17"), ("unattended", "41"), ("unattended", "2147483646"),
                ("unattended", "x"),
            ] {
                let header = cache.header(with: name, text)
                refuses(cache, cache.state, [header], "\(storage) \(name) \(text)")
            }
        }
    }

    func testSettingsOfAFileHaveTheErrorsOfAnyOther() throws {
        let cache = try H2OStorage.sixteenBits.filledCache()
        let header = cache.header(with: "sink_size", "15")
        XCTAssertThrowsError(try H2OKVCache(state: cache.state, metaState: [header])) { error in
            guard
                case .invalidConfiguration(.budgetsExceedMaxSize(let sinks, _, _, _, 16), nil)? =
                    error as? H2OCacheError
            else { return XCTFail("\(error)") }
            XCTAssertEqual(sinks, 15)
        }
    }

    func testAPlainCacheWithoutItsShapesIsRefused() throws {
        let file = folder.appending(path: "caches.safetensors")
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

    func testAnErrorHasItsCodeAndValues() throws {
        let policy = MLXFast.H2OPolicy(checked: [
            "max_size": .integer(48), "recent_budget": .integer(8), "recall.ask": .integer(4),
        ])
        let cache = MLXFast.H2OLayerCache(policy: policy, format: .dense)
        let queries = Tokens(1, seed: 1).queries
        XCTAssertThrowsError(
            try withError {
                _ = cache.attend(queries: queries, keys: nil, values: nil, scale: 1, mask: .causal)
            })
        XCTAssertEqual(MLXFast.H2OError.last?.code, "attend_before_write")

        XCTAssertThrowsError(
            try MLXFast.H2OLayerCache(
                restoring: [],
                header: cache.header.replacing("offset=0", with: "offset=5")
                    .replacing("length=0", with: "length=4"))
        ) { error in
            let error = error as? MLXFast.H2OError
            XCTAssertEqual(error?.code, "damaged_header")
            XCTAssertEqual(error?.values["part"], "length")
            XCTAssertEqual(error?.values["found"], "4")
        }
        XCTAssertEqual(cache.offset, 0)
        XCTAssertNil(MLXFast.H2OError.last, "the last call had no error")
        XCTAssertThrowsError(
            try withError {
                _ = MLXFast.H2OLayerCache(
                    policy: policy, format: .init(keyBits: 5, valueBits: 5))
            })
    }
}
