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
        let flat = MLXArray([Float(0)], [1])
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
