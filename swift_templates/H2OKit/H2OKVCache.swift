import Foundation
import MLX
import MLXLMCommon

/// A KV cache that keeps at most C tokens per head: sinks, the newest tokens, and those
/// that attention looks at (heavy hitters).
///
/// Its `state` is the rows `[B, Hkv, N, Dk + Dv]`, scores, positions and novelty
/// `[B, Hkv, C]`, key sum `[B, Hkv, Dk]` and victim `[B, Hkv]`; empty while the cache is.
package final class H2OKVCache: H2OCacheImplementation {
    package static let format = "h2o.dense.1"

    static let blankFormat = MLXFast.H2ORowFormat.dense

    var core: H2OCacheCore

    init(_ core: H2OCacheCore) {
        self.core = core
    }

    package convenience init(configuration: H2OConfiguration) {
        self.init(H2OCacheCore(configuration, .dense))
    }

    package convenience init(
        state: [MLXArray], metaState: [String], archive: URL?
    ) throws {
        self.init(try Self.restored(state, metaState, archive: archive))
    }
}
