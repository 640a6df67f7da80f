import Foundation
import MLX
import MLXLMCommon

/// All caches of a model in a file of mlx-lm's layout: what its `save_prompt_cache` and
/// `load_prompt_cache` write and read, H2O caches and those that other layers keep.
///
/// mlx-swift-lm's own functions of that name know no H2O caches: they would write them as
/// plain ones and end the process when they read them.
///
/// Member j of cache i's state is named `"i.j"`: an array, or a number, text or nothing, which
/// the header says (`"2.k.0"` the name, `"2.k.1"` what it is). It holds the caller's strings
/// as `"0.key"` and class names as `"1.i"` too. Files of mlx-lm 0.31 and before are read as
/// well: there the header has all numbers and texts, each cache's before those others.
public enum H2OPromptCacheFile {
    private static let known = ["KVCache", "RotatingKVCache", "ArraysCache", "MambaCache"]

    /// - Parameters:
    ///   - caches: one for each that the model makes, none empty
    ///   - file: its name ends in .safetensors
    ///   - metadata: strings that ``load(from:)`` gives back
    /// - Throws: ``H2OFileError`` for a cache that is empty or of another kind, or an error
    ///   of writing
    public static func save(
        _ caches: [any KVCache], to file: URL, metadata: [String: String] = [:]
    ) throws {
        var contents = PromptCacheContents()
        for (key, text) in metadata { contents.header["0.\(key)"] = text }
        for (i, cache) in caches.enumerated() {
            let state = cache.state
            guard !state.isEmpty else {
                throw H2OFileError.notWritten(index: i, found: "empty")
            }
            contents.header["1.\(i)"] = try className(of: cache, index: i)
            switch cache {
            case is any H2OScoreTracking:
                contents.add(state, cache.metaState.map { .text($0) }, of: i)
            case is RotatingKVCache:
                // Python's order, and without the step, the third of Swift's, and what newer
                // ones have at the end.
                let values = cache.metaState.prefix(5).compactMap(Int.init)
                let (keep, size, offset, index) = (values[0], values[1], values[3], values[4])
                contents.add(state, [offset, keep, size, index].map { .number($0) }, of: i)
            case is ArraysCache:
                contents.add(nested: state, [.none, .none], of: i)
            default:
                contents.add(state, [.number(state[0].dim(2))], of: i)
            }
        }
        try MLX.save(arrays: contents.arrays, metadata: contents.header, url: file)
    }

    /// The caches of a file and the metadata that was saved with them.
    ///
    /// - Parameters:
    ///   - file: what ``save(_:to:metadata:)`` or mlx-lm wrote
    ///   - archive: see ``H2OCacheFile/load(from:archive:)``
    /// - Throws: ``H2OFileError`` for another file or a cache of another kind,
    ///   ``H2OStateError`` for a damaged one, `MLXFast.H2OArchiveFailure` where the archive
    ///   is not there, or an error of reading
    public static func load(
        from file: URL, archive: URL? = nil
    ) throws -> (caches: [any KVCache], metadata: [String: String]) {
        let (arrays, header) = try H2OCacheFile.contents(of: file)
        let contents = PromptCacheContents(arrays: arrays, header: header)
        let names = contents.strings(contents.isOlder ? "2" : "1")
        guard !names.isEmpty else {
            throw H2OFileError.otherKind(file: file.path, found: header["kind"] ?? "")
        }
        let caches = try names.enumerated().map { i, name -> any KVCache in
            let (state, strings) = contents.saved(i)
            if H2OCacheFile.classes.contains(where: { String(describing: $0) == name }) {
                return try H2OCacheFile.restore(state, strings, from: file, archive: archive)
            }
            return try restore(name, state, strings, older: contents.isOlder, from: file)
        }
        let prefix = contents.isOlder ? "1." : "0."
        let metadata = header.compactMap { key, text in
            key.hasPrefix(prefix) ? (String(key.dropFirst(2)), text) : nil
        }
        return (caches, Dictionary(metadata) { first, _ in first })
    }

    private static func className(of cache: any KVCache, index: Int) throws -> String {
        switch cache {
        case is any H2OScoreTracking: return String(describing: type(of: cache))
        case is RotatingKVCache: return "RotatingKVCache"
        case is ArraysCache: return "ArraysCache"
        default:
            guard type(of: cache) == KVCacheSimple.self else {
                throw H2OFileError.notWritten(index: index, found: "a \(type(of: cache))")
            }
            return "KVCache"
        }
    }

    /// A cache of upstream's.
    private static func restore(
        _ name: String, _ state: [MLXArray], _ strings: [String], older: Bool, from file: URL
    ) throws -> any KVCache {
        // Plain caches and those of sliding windows have keys and values of one shape.
        let heads = state.map { $0.shape.prefix(3) }
        let isPair = state.count == 2 && state.allSatisfy { $0.ndim == 4 } && heads[0] == heads[1]
        guard isPair || !name.hasSuffix("KVCache") && !name.hasPrefix("KVCache") else {
            throw H2OStateError.inconsistent("a \(name) has arrays of \(state.map(\.shape))")
        }
        let cache: BaseKVCache
        switch name {
        case "KVCache", "KVCacheSimple":
            cache = KVCacheSimple()
            let used = older ? state[0].dim(2) : strings.first.flatMap(Int.init)
            guard let used, (0 ... state[0].dim(2)).contains(used) else {
                throw H2OStateError.inconsistent("a \(name) has the strings \(strings)")
            }
            cache.state = state.map { $0[.ellipsis, ..<used, 0...] }
        case "ArraysCache", "MambaCache":
            cache = MambaCache()
            cache.state = state
        case "RotatingKVCache":
            let values = strings.prefix(5).compactMap(Int.init)
            guard values.count == min(strings.count, 5), 4 ... 6 ~= strings.count,
                values.allSatisfy({ 0 ... H2OCacheCore.mostTokens ~= $0 })
            else {
                throw H2OStateError.inconsistent("a RotatingKVCache has the strings \(strings)")
            }
            let (keep, size, offset) =
                older
                ? (values[0], values[1], values[values.count - 2])
                : (values[1], values[2], values[0])
            cache = RotatingKVCache(maxSize: size, keep: keep)
            cache.state = state
            cache.metaState = [keep, size, 256, offset, values[values.count - 1]].map(String.init)
        default:
            let own = H2OCacheFile.classes.map { String(describing: $0) }
            throw H2OFileError.otherCache(
                file: file.path, found: name, known: (own + known).sorted())
        }
        return cache
    }
}
