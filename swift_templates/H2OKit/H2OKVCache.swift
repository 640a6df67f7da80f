import Foundation
import MLX
import MLXLMCommon

/// A KV cache that keeps at most C tokens per head: sinks, the newest tokens, and those
/// that attention looks at (heavy hitters).
///
/// Its `state` is the rows `[B, Hkv, N, Dk + Dv]`, scores, positions and novelty
/// `[B, Hkv, C]`, key sum `[B, Hkv, Dk]` and victim `[B, Hkv]`; empty while the cache is.
package final class H2OKVCache: H2OCacheImplementation {
    public static let format = "h2o.dense.1"

    static let blankFormat = MLXFast.H2ORowFormat.dense

    var core: H2OCacheCore

    init(_ core: H2OCacheCore) {
        self.core = core
    }

    public convenience init(configuration: H2OConfiguration) {
        self.init(H2OCacheCore(configuration, .dense))
    }

    /// - Parameters:
    ///   - maxSize: C, the rows each KV head keeps
    ///   - heavyBudget: rows for heavy hitters, nil for half of `maxSize`
    ///   - recentBudget: the newest tokens that are kept, nil for the remaining rows
    ///   - sinkSize: the first tokens, which are kept
    /// - Throws: ``H2OCacheError`` when the values do not fit together
    public convenience init(
        maxSize: Int, heavyBudget: Int? = nil, recentBudget: Int? = nil, sinkSize: Int = 4
    ) throws {
        let configuration = try H2OConfiguration(
            maxSize: maxSize, sinkSize: sinkSize, heavyBudget: heavyBudget,
            recentBudget: recentBudget)
        self.init(configuration: configuration)
    }

    public convenience init(
        state: [MLXArray], metaState: [String], archive: URL?
    ) throws {
        self.init(try Self.restored(state, metaState, archive: archive))
    }
}
