import Foundation
import MLX

/// What h2o_py's `save_cache` writes: H2O caches alone.
///
/// Array j of cache i is named `"i.j"`, in the order of its `state`; the header holds kind,
/// version and, as JSON, each cache's `metaState` ("layers") and strings of the caller
/// ("metadata").
struct ScoredCacheContents {
    static let kind = "h2o-pack cache"
    private static let version = "1"

    let arrays: [String: MLXArray]
    let header: [String: String]

    /// - Throws: ``H2OCacheError``
    var metadata: [String: String] {
        get throws { try decode([String: String].self, header["metadata"]) }
    }

    /// - Throws: as ``H2OCacheFile/load(from:archive:)``
    func caches(archive: URL?) throws -> [any H2OScoreTracking] {
        guard let version = header["version"], version == Self.version else {
            throw H2OCacheError.otherFormat(
                found: "\(Self.kind) \(header["version"] ?? "")",
                known: ["\(Self.kind) \(Self.version)"])
        }
        return try decode([[String]].self, header["layers"]).enumerated().map { i, metaState in
            try H2OCacheFile.restore(
                H2OCacheFile.state("\(i)", of: arrays), metaState, archive: archive)
        }
    }
}
