import Foundation
import MLX
import MLXLMCommon

extension PromptCacheContents {
    private static let known = ["KVCache", "RotatingKVCache", "ArraysCache", "MambaCache"]
    /// Lists of plain caches, and those with an H2O cache among them.
    private static let (plainList, scoredList) = ("CacheList", "H2OCacheList")

    /// Adds a cache of the model, or a layer's list of them.
    ///
    /// - Returns: the name of its class in Python
    /// - Throws: ``H2OCacheError/notSavable(index:found:)``
    mutating func add(_ cache: any KVCache, index: Int) throws -> String {
        guard cache is CacheList else { return try add(cache, at: "\(index)", index: index) }
        for (j, member) in cache.leaves.enumerated() {
            let name = try add(member, at: "\(index).\(j).0", index: index)
            add(.text(name), at: "\(index).\(j).1")
        }
        return cache.leaves.contains { $0 is any H2OScoreTracking }
            ? Self.scoredList : Self.plainList
    }

    private mutating func add(_ cache: any KVCache, at place: String, index: Int) throws -> String {
        let name = try Self.className(of: cache, index: index)
        let state = cache.state
        guard !state.isEmpty else { throw H2OCacheError.notSavable(index: index, found: "empty") }
        switch cache {
        case is any H2OScoreTracking:
            add(state, cache.metaState.map { .text($0) }, at: place)
        case is RotatingKVCache:
            // Python's order, and without the step, the third of Swift's, and what newer
            // ones have at the end.
            let values = cache.metaState.prefix(5).compactMap(Int.init)
            let (keep, size, offset, next) = (values[0], values[1], values[3], values[4])
            add(state, [offset, keep, size, next].map { .number($0) }, at: place)
        case is ArraysCache:
            add(nested: state, [.none, .none], at: place)
        default:
            add(state, [.number(state[0].dim(2))], at: place)
        }
        return name
    }

    private static func className(of cache: any KVCache, index: Int) throws -> String {
        switch cache {
        case is any H2OScoreTracking: return String(describing: type(of: cache))
        case is RotatingKVCache: return "RotatingKVCache"
        case is ArraysCache: return "ArraysCache"
        default:
            guard type(of: cache) == KVCacheSimple.self else {
                throw H2OCacheError.notSavable(index: index, found: "a \(type(of: cache))")
            }
            return "KVCache"
        }
    }

    /// - Throws: as ``H2OCacheFile/load(from:archive:)``
    func caches(archive: URL?) throws -> [any KVCache] {
        guard !classNames.isEmpty else {
            throw H2OCacheError.otherFormat(
                found: header["kind"] ?? "", known: [ScoredCacheContents.kind, "mlx-lm"])
        }
        return try classNames.enumerated().map { i, name in
            guard !isOlder, [Self.plainList, Self.scoredList].contains(name) else {
                return try cache(name, at: "\(i)", archive: archive)
            }
            let members = try memberNames(of: i).enumerated().map { j, name in
                try cache(name, at: "\(i).\(j).0", archive: archive)
            }
            guard !members.isEmpty else {
                throw H2OCacheError.damaged(reason: "a \(name) has no caches")
            }
            return CacheList(members: members)
        }
    }

    private func cache(
        _ name: String, at place: String, archive: URL?
    ) throws -> any KVCache {
        let (state, strings) = saved(at: place)
        if H2OCacheFile.classes.contains(where: { String(describing: $0) == name }) {
            return try H2OCacheFile.restore(state, strings, archive: archive)
        }
        return try upstreamCache(name, state, strings)
    }

    /// A cache of upstream's.
    private func upstreamCache(
        _ name: String, _ state: [MLXArray], _ strings: [String]
    ) throws -> any KVCache {
        // Plain caches and those of sliding windows have keys and values of one shape.
        let heads = state.map { $0.shape.prefix(3) }
        let isPair = state.count == 2 && state.allSatisfy { $0.ndim == 4 } && heads[0] == heads[1]
        guard isPair || !name.hasSuffix("KVCache") && !name.hasPrefix("KVCache") else {
            throw H2OCacheError.damaged(reason: "a \(name) has arrays of \(state.map(\.shape))")
        }
        let cache: BaseKVCache
        switch name {
        case "KVCache", "KVCacheSimple":
            cache = KVCacheSimple()
            let used = isOlder ? state[0].dim(2) : strings.first.flatMap(Int.init)
            guard let used, (0 ... state[0].dim(2)).contains(used) else {
                throw H2OCacheError.damaged(reason: "a \(name) has the strings \(strings)")
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
                throw H2OCacheError.damaged(reason: "a RotatingKVCache has the strings \(strings)")
            }
            let (keep, size, offset) =
                isOlder
                ? (values[0], values[1], values[values.count - 2])
                : (values[1], values[2], values[0])
            cache = RotatingKVCache(maxSize: size, keep: keep)
            cache.state = state
            cache.metaState = [keep, size, 256, offset, values[values.count - 1]].map(String.init)
        default:
            let own = H2OCacheFile.classes.map { String(describing: $0) }
            throw H2OCacheError.otherFormat(found: name, known: (own + Self.known).sorted())
        }
        return cache
    }
}
