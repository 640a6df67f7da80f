import Foundation
import MLX

/// H2O caches in a file, so that a conversation goes on in another process: that of
/// Python's `save_cache` and `load_cache`, which read each other's files.
///
/// A safetensors file. Array j of cache i is named `"i.j"`, in the order of its `state`;
/// the header holds kind, version and, as JSON, each cache's `metaState` ("layers") and
/// strings of the caller ("metadata").
public enum H2OCacheFile {
    private static let kind = "h2o-pack cache"
    private static let version = "1"

    /// The classes of caches that are read.
    static var classes: [any H2OScoreTracking.Type] {
        [H2OKVCache.self, QuantizedH2OKVCache.self, MixedH2OKVCache.self]
    }

    /// - Parameters:
    ///   - caches: one per layer, none empty
    ///   - file: its name ends in .safetensors
    ///   - metadata: strings that ``load(from:)`` gives back
    /// - Throws: ``H2OFileError`` for an empty cache, or an error of writing
    public static func save(
        _ caches: [any H2OScoreTracking], to file: URL, metadata: [String: String] = [:]
    ) throws {
        var arrays = [String: MLXArray]()
        for (i, cache) in caches.enumerated() {
            let state = cache.state
            guard !state.isEmpty else {
                throw H2OFileError.notWritten(index: i, found: "empty")
            }
            for (j, array) in state.enumerated() { arrays["\(i).\(j)"] = array }
        }
        let header = [
            "kind": kind, "version": version, "layers": json(caches.map(\.metaState)),
            "metadata": json(metadata),
        ]
        try MLX.save(arrays: arrays, metadata: header, url: file)
    }

    /// The caches of a file, one per layer, and the metadata that was saved with them.
    ///
    /// - Parameters:
    ///   - file: what ``save(_:to:metadata:)`` wrote
    ///   - archive: the folder with the layers' archives in files, `recall.store` when the
    ///     caches were made, if it was moved since; an app's container is, by an update
    /// - Throws: ``H2OFileError`` for a file of another kind or version,
    ///   ``H2OStateError`` for a damaged one, `MLXFast.H2OArchiveFailure` where the archive
    ///   is not there, or an error of reading
    public static func load(
        from file: URL, archive: URL? = nil
    ) throws -> (caches: [any H2OScoreTracking], metadata: [String: String]) {
        let (arrays, header) = try contents(of: file)
        guard let kind = header["kind"], kind == Self.kind else {
            throw H2OFileError.otherKind(file: file.path, found: header["kind"] ?? "")
        }
        guard let version = header["version"], version == Self.version else {
            throw H2OFileError.otherVersion(
                file: file.path, found: header["version"] ?? "", expected: Self.version)
        }
        let layers = try decode([[String]].self, header["layers"])
        let caches = try layers.enumerated().map { i, metaState in
            try restore(state("\(i)", of: arrays), metaState, from: file, archive: archive)
        }
        return (caches, try decode([String: String].self, header["metadata"]))
    }

    /// The arrays and strings of a safetensors file, read to the end: MLX would read an
    /// array when it is asked for, when the file may be another one. MLX opens files by their
    /// ending; the bytes of another one are given to it.
    static func contents(of file: URL) throws -> ([String: MLXArray], [String: String]) {
        let (arrays, header) =
            file.pathExtension == "safetensors"
            ? try loadArraysAndMetadata(url: file)
            : try loadArraysAndMetadata(data: Data(contentsOf: file, options: .mappedIfSafe))
        try withError { eval(arrays.values) }
        return (arrays, header)
    }

    /// The arrays `"prefix.0"`, `"prefix.1"` and so on.
    static func state(_ prefix: String, of arrays: [String: MLXArray]) -> [MLXArray] {
        var state = [MLXArray]()
        while let array = arrays["\(prefix).\(state.count)"] { state.append(array) }
        return state
    }

    /// A cache of the class that the metadata names.
    static func restore(
        _ state: [MLXArray], _ metaState: [String], from file: URL, archive: URL?
    ) throws -> any H2OScoreTracking {
        guard let cacheClass = classes.first(where: { $0.reads(metaState.first) }) else {
            throw H2OFileError.otherCache(
                file: file.path, found: metaState.first ?? "", known: classes.map { $0.format })
        }
        return try cacheClass.init(state: state, metaState: metaState, archive: archive)
    }
}
