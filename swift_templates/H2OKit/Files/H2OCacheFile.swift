import Foundation
import MLX
import MLXLMCommon

/// All caches of a model in a file, so that a conversation goes on in another process: H2O
/// caches and those that other layers keep.
///
/// A file is written in mlx-lm's layout, which its `load_prompt_cache` reads where h2o_py is
/// imported. One that its `save_prompt_cache` or h2o_py's `save_cache` wrote is read as well.
///
/// mlx-swift-lm's own functions know no H2O caches: they would write them as plain ones and end
/// the process when they read them.
package enum H2OCacheFile {
    /// - Parameters:
    ///   - caches: one for each that the model makes, none empty
    ///   - file: its name ends in .safetensors
    ///   - metadata: strings that ``load(from:archive:)`` gives back
    /// - Throws: ``H2OCacheError/notSavable(index:found:)``, or an error of writing
    package static func save(
        _ caches: [any KVCache], to file: URL, metadata: [String: String] = [:]
    ) throws {
        try computed(caches, metadata: metadata).write(to: file)
    }

    /// What a file will have. Writing it takes no GPU any more.
    package struct Computed {
        fileprivate let arrays: [String: MLXArray]
        fileprivate let header: [String: String]

        /// - Throws: an error of writing
        package func write(to file: URL) throws {
            try MLX.save(arrays: arrays, metadata: header, url: file)
        }
    }

    /// Computes what ``save(_:to:metadata:)`` writes.
    ///
    /// - Throws: ``H2OCacheError/notSavable(index:found:)``
    package static func computed(
        _ caches: [any KVCache], metadata: [String: String] = [:]
    ) throws -> Computed {
        var contents = PromptCacheContents()
        for (key, text) in metadata { contents.header["0.\(key)"] = text }
        for (i, cache) in caches.enumerated() {
            contents.header["1.\(i)"] = try contents.add(cache, index: i)
        }
        // Row after row, as a file has them: MLX would copy a view when it writes it.
        let arrays = contents.arrays.mapValues { $0.reshaped([-1]).reshaped($0.shape) }
        try withError { eval(arrays.values) }
        return Computed(arrays: arrays, header: contents.header)
    }

    /// The caches of a file, which choose together at prompts as new ones do, and the metadata
    /// that was saved with them.
    ///
    /// - Parameters:
    ///   - file: what ``save(_:to:metadata:)``, mlx-lm or h2o_py wrote
    ///   - archive: the folder with the layers' archives in files; nil for archives in memory.
    ///     What the file names is not opened
    /// - Throws: ``H2OCacheError`` for another or a damaged file, or where the archive is not
    ///   there; or an error of reading
    package static func load(
        from file: URL, archive: URL? = nil
    ) throws -> (caches: [any KVCache], metadata: [String: String]) {
        let (arrays, header) = try contents(of: file)
        let loaded: (caches: [any KVCache], metadata: [String: String])
        loaded = try H2OCacheError.reading(file) {
            if header["kind"] == ScoredCacheContents.kind {
                let contents = ScoredCacheContents(arrays: arrays, header: header)
                return (try contents.caches(archive: archive), try contents.metadata)
            }
            let contents = PromptCacheContents(arrays: arrays, header: header)
            return (try contents.caches(archive: archive), contents.metadata)
        }
        H2OCaches.join(loaded.caches)
        return loaded
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

    /// The classes of H2O caches.
    static var classes: [any H2OScoreTracking.Type] {
        [H2OKVCache.self, QuantizedH2OKVCache.self, MixedH2OKVCache.self]
    }

    /// An H2O cache of the class that the metadata names.
    static func restore(
        _ state: [MLXArray], _ metaState: [String], archive: URL?
    ) throws -> any H2OScoreTracking {
        guard let cacheClass = classes.first(where: { $0.reads(metaState.first) }) else {
            throw H2OCacheError.otherFormat(
                found: metaState.first ?? "", known: classes.map { $0.format })
        }
        return try cacheClass.init(state: state, metaState: metaState, archive: archive)
    }
}
