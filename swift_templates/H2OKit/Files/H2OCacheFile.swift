import Foundation
import MLX
import MLXLMCommon

/// Saves all caches of a model to a file, so that a conversation can continue in another
/// process: the H2O caches, and the caches of the other layers.
///
/// Files have mlx-lm's layout: mlx-lm's `load_prompt_cache` reads them if h2o_py is imported, and
/// ``load(from:archive:)`` reads those that mlx-lm's `save_prompt_cache` wrote.
///
/// Do not use mlx-swift-lm's own functions for H2O caches: these functions write them as plain
/// caches, and end the process when they read a file with H2O caches.
package enum H2OCacheFile {
    /// The content of a file, computed so that writing it uses no GPU.
    package struct Computed {
        fileprivate let arrays: [String: MLXArray]
        fileprivate let header: [String: String]

        /// - Parameter file: its name ends in .safetensors
        /// - Throws: an error of writing
        package func write(to file: URL) throws {
            do {
                try MLX.save(arrays: arrays, metadata: header, url: file)
            } catch {
                // MLX does not say why it cannot write. Where the disk is full, writing more fails
                // too, with an error of the system.
                let handle = try FileHandle(forWritingTo: file)
                defer { try? handle.close() }
                try handle.seekToEnd()
                try handle.write(contentsOf: Data(count: 1 << 20))
                throw error
            }
        }
    }

    /// Computes the content of a file.
    ///
    /// - Parameters:
    ///   - caches: all caches of the model; none may be empty
    ///   - metadata: strings that ``load(from:archive:)`` returns
    /// - Throws: ``H2OCacheError/notSavable(index:found:)``
    package static func computed(
        _ caches: [any KVCache], metadata: [String: String] = [:]
    ) throws -> Computed {
        var contents = PromptCacheContents()
        for (key, text) in metadata { contents.header["0.\(key)"] = text }
        for (i, cache) in caches.enumerated() {
            contents.header["1.\(i)"] = try contents.add(cache, index: i)
        }
        // Makes the arrays contiguous, because writing a view would copy it on the GPU.
        let arrays = contents.arrays.mapValues { $0.reshaped([-1]).reshaped($0.shape) }
        try withError { eval(arrays.values) }
        return Computed(arrays: arrays, header: contents.header)
    }

    /// Loads the caches of a file, and the metadata that was saved with them.
    ///
    /// - Parameters:
    ///   - file: a file that ``Computed/write(to:)`` or mlx-lm wrote
    ///   - archive: the folder with the layers' archives in files; nil for archives in memory.
    ///     The folder that is named in the file is never opened
    /// - Throws: ``H2OCacheError`` if the file is damaged or of another kind, or if its archive
    ///   is missing; or an error of reading
    package static func load(
        from file: URL, archive: URL? = nil
    ) throws -> (caches: [any KVCache], metadata: [String: String]) {
        let (arrays, header) = try contents(of: file)
        let contents = PromptCacheContents(arrays: arrays, header: header)
        let caches = try H2OCacheError.reading(file) { try contents.caches(archive: archive) }
        return (caches, contents.metadata)
    }

    /// Reads the arrays and strings of a safetensors file. The whole file is read now, because MLX
    /// would read an array only when it is used, and the file may have changed by then. MLX decides
    /// by the extension how to open a file, so it gets the bytes of a file with another extension.
    static func contents(of file: URL) throws -> ([String: MLXArray], [String: String]) {
        try RegularFile.check(file, most: RegularFile.mostOfCaches)
        let (arrays, header) =
            file.pathExtension == "safetensors"
            ? try loadArraysAndMetadata(url: file)
            : try loadArraysAndMetadata(data: Data(contentsOf: file, options: .mappedIfSafe))
        try withError { eval(arrays.values) }
        return (arrays, header)
    }
}
