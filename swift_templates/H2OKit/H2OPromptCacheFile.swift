import Foundation
import MLX
import MLXLMCommon

/// All caches of a model in a file of mlx-lm's layout: what its `save_prompt_cache` and
/// `load_prompt_cache` write and read, H2O caches and those that other layers keep.
///
/// mlx-swift-lm's own functions of that name know no H2O caches: they would write them as
/// plain ones and end the process when they read them.
///
/// Array j of cache i is named `"i.j"`; the header holds each cache's strings as `"0.i.j"`
/// (`"0.i"` where it has but one), the caller's as `"1.key"` and class names as `"2.i"`.
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
        var arrays = [String: MLXArray]()
        var header = [String: String]()
        for (i, cache) in caches.enumerated() {
            let state = cache.state
            guard !state.isEmpty else {
                throw H2OFileError.notWritten(index: i, found: "empty")
            }
            for (j, array) in state.enumerated() { arrays["\(i).\(j)"] = array }
            header["2.\(i)"] = try className(of: cache, index: i)
            switch cache {
            case is any H2OScoreTracking:
                for (j, text) in cache.metaState.enumerated() { header["0.\(i).\(j)"] = text }
            case is RotatingKVCache:
                // Python's lacks the step, the third of Swift's, and what newer ones have at
                // the end.
                for (j, text) in cache.metaState.prefix(5).enumerated() where j != 2 {
                    header["0.\(i).\(j > 2 ? j - 1 : j)"] = text
                }
            default:
                header["0.\(i)"] = ""
            }
        }
        for (key, text) in metadata { header["1.\(key)"] = text }
        try MLX.save(arrays: arrays, metadata: header, url: file)
    }

    /// The caches of a file and the metadata that was saved with them.
    ///
    /// - Throws: ``H2OFileError`` for another file or a cache of another kind,
    ///   ``H2OStateError`` for a damaged one, or an error of reading
    public static func load(
        from file: URL
    ) throws -> (caches: [any KVCache], metadata: [String: String]) {
        let (arrays, header) = try H2OCacheFile.contents(of: file)
        var caches = [any KVCache]()
        while let name = header["2.\(caches.count)"] {
            let i = caches.count
            let state = H2OCacheFile.state(i, of: arrays)
            caches.append(try restore(name, state, strings("0.\(i)", of: header), from: file))
        }
        guard !caches.isEmpty else {
            throw H2OFileError.otherKind(file: file.path, found: header["kind"] ?? "")
        }
        let metadata = header.compactMap { key, text in
            key.hasPrefix("1.") ? (String(key.dropFirst(2)), text) : nil
        }
        return (caches, Dictionary(metadata) { first, _ in first })
    }

    /// The strings `"prefix.0"`, `"prefix.1"` and so on.
    private static func strings(_ prefix: String, of header: [String: String]) -> [String] {
        var strings = [String]()
        while let text = header["\(prefix).\(strings.count)"] { strings.append(text) }
        return strings
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

    private static func restore(
        _ name: String, _ state: [MLXArray], _ metaState: [String], from file: URL
    ) throws -> any KVCache {
        let h2oNames = H2OCacheFile.classes.map { String(describing: $0) }
        if h2oNames.contains(name) {
            return try H2OCacheFile.restore(state, metaState, from: file)
        }
        guard !name.hasSuffix("KVCache") || state.count == 2 else {
            throw H2OStateError.inconsistent("a \(name) has \(state.count) arrays")
        }
        let cache: BaseKVCache
        switch name {
        case "KVCache", "KVCacheSimple": cache = KVCacheSimple()
        case "ArraysCache", "MambaCache": cache = MambaCache()
        case "RotatingKVCache":
            let numbers = Array(metaState.prefix(5))
            let values = numbers.compactMap(Int.init)
            guard values.count == numbers.count, 4 ... 6 ~= metaState.count else {
                throw H2OStateError.inconsistent("a RotatingKVCache has the strings \(metaState)")
            }
            cache = RotatingKVCache(maxSize: values[1], keep: values[0])
            cache.state = state
            // Python's lacks the step, the third of Swift's.
            cache.metaState = values.count == 5 ? numbers : insertingStep(numbers)
            return cache
        default:
            throw H2OFileError.otherCache(
                file: file.path, found: name, known: (h2oNames + known).sorted())
        }
        cache.state = state
        return cache
    }

    private static func insertingStep(_ strings: [String]) -> [String] {
        Array(strings.prefix(2)) + ["256"] + strings.dropFirst(2)
    }
}
