import Foundation
import MLX
import MLXLMCommon

/// The arrays and the header of a file in mlx-lm's layout.
///
/// Member j of the state of cache i is the array `"i.j"`. If the member is a number, a text or
/// null, the array contains its value, and the header has its kind: `"2.k.0"` is the name of the
/// array, and `"2.k.1"` is `scalar`, `string` or `none`. If cache i is a list, `"i.j.0"` is the
/// state of its cache j, and `"i.j.1"` the name of that cache's class. The header also contains the
/// caller's strings as `"0.key"`, and the class name of cache i as `"1.i"`.
struct PromptCacheContents {
    /// A member of a state that is not an array.
    enum Scalar {
        case number(Int)
        case text(String)
        case none
    }

    var arrays = [String: MLXArray]()
    var header = ["2.0": ""]
    private var scalars = 0

    init() {}

    init(arrays: [String: MLXArray], header: [String: String]) {
        self.arrays = arrays
        self.header = header
    }

    mutating func add(_ state: [MLXArray], _ scalars: [Scalar], at place: String) {
        for (j, array) in state.enumerated() { arrays["\(place).\(j)"] = array }
        add(scalars, at: place, after: state.count)
    }

    /// Adds a state whose first member is the list of all arrays.
    mutating func add(nested state: [MLXArray], _ scalars: [Scalar], at place: String) {
        for (j, array) in state.enumerated() { arrays["\(place).0.\(j)"] = array }
        add(scalars, at: place, after: 1)
    }

    private mutating func add(_ added: [Scalar], at place: String, after count: Int) {
        for (j, scalar) in added.enumerated() { add(scalar, at: "\(place).\(count + j)") }
    }

    mutating func add(_ scalar: Scalar, at name: String) {
        scalars += 1
        header["2.\(scalars).0"] = name
        switch scalar {
        case .number(let number):
            header["2.\(scalars).1"] = "scalar"
            arrays[name] = MLXArray([Int32(clamping: number)])
        case .text(let text):
            header["2.\(scalars).1"] = "string"
            arrays[name] = MLXArray(text.unicodeScalars.map { Int32($0.value) })
        case .none:
            header["2.\(scalars).1"] = "none"
            arrays[name] = MLXArray([Int32(0)])
        }
    }

    /// The arrays of a cache's state, and its numbers and texts as strings.
    func saved(at place: String) -> (state: [MLXArray], strings: [String]) {
        let kinds = self.kinds
        var (state, strings) = ([MLXArray](), [String]())
        var name: String { "\(place).\(member)" }
        var member = 0
        while true {
            let nested = self.state(name)
            switch (arrays[name], kinds[name]) {
            case (nil, _) where nested.isEmpty: return (state, strings)
            case (nil, _): state += nested
            case (let number?, "scalar"):
                strings.append(number.asArray(Int32.self).first.map { String($0) } ?? "")
            case (let text?, "string"): strings.append(Self.text(text))
            case (_, "none"): break
            case (let array?, _): state.append(array)
            }
            member += 1
        }
    }

    /// The classes of all caches.
    var classNames: [String] {
        var names = [String]()
        while let name = header["1.\(names.count)"] { names.append(name) }
        return names
    }

    /// The classes of the caches in a list.
    func memberNames(of list: Int) -> [String] {
        let kinds = self.kinds
        var names = [String]()
        while let name = arrays["\(list).\(names.count).1"],
            kinds["\(list).\(names.count).1"] == "string"
        {
            names.append(Self.text(name))
        }
        return names
    }

    /// The caller's strings.
    var metadata: [String: String] {
        let own = header.filter { $0.key.hasPrefix("0.") }
        return Dictionary(own.map { (String($0.dropFirst(2)), $1) }) { first, _ in first }
    }

    private static func text(_ scalars: MLXArray) -> String {
        let scalars = scalars.asArray(UInt32.self).compactMap(Unicode.Scalar.init)
        return String(String.UnicodeScalarView(scalars))
    }

    /// The arrays `"prefix.0"`, `"prefix.1"` and so on.
    private func state(_ prefix: String) -> [MLXArray] {
        var state = [MLXArray]()
        while let array = arrays["\(prefix).\(state.count)"] { state.append(array) }
        return state
    }

    private var kinds: [String: String] {
        var (kinds, k) = ([String: String](), 1)
        while let name = header["2.\(k).0"] {
            kinds[name] = header["2.\(k).1"]
            k += 1
        }
        return kinds
    }
}

extension PromptCacheContents {
    private static let classes = ["KVCache", "RotatingKVCache", "ArraysCache"]
    /// The names of list classes: for lists of plain caches, and for lists with an H2O cache.
    private static let (plainList, scoredList) = ("CacheList", "H2OCacheList")

    /// Adds a cache of the model, or a layer's list of caches.
    ///
    /// - Returns: the name of its class in Python
    /// - Throws: ``H2OCacheError/notSavable(index:found:)``
    mutating func add(_ cache: any KVCache, index: Int) throws -> String {
        guard cache is CacheList else { return try add(cache, at: "\(index)", index: index) }
        for (j, member) in cache.leaves.enumerated() {
            let name = try add(member, at: "\(index).\(j).0", index: index)
            add(.text(name), at: "\(index).\(j).1")
        }
        return cache.leaves.contains { $0 is H2OKVCache }
            ? Self.scoredList : Self.plainList
    }

    private mutating func add(_ cache: any KVCache, at place: String, index: Int) throws -> String {
        let name = try Self.className(of: cache, index: index)
        let state = cache.state
        guard !state.isEmpty else { throw H2OCacheError.notSavable(index: index, found: "empty") }
        switch cache {
        case is H2OKVCache:
            add(state, cache.metaState.map { .text($0) }, at: place)
        case is RotatingKVCache:
            // Swift's strings are keep, size, step, offset and next, and newer versions append
            // more. Python's file has no step, and another order.
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
        case let own as H2OKVCache: return own.kind.rawValue
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
                found: header["kind"] ?? "", known: ["mlx-lm"])
        }
        return try classNames.enumerated().map { i, name in
            guard [Self.plainList, Self.scoredList].contains(name) else {
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
        if H2OKVCache.Kind(rawValue: name) != nil {
            return try H2OKVCache(state: state, metaState: strings, archive: archive)
        }
        return try upstreamCache(name, state, strings)
    }

    /// Makes a cache of a class of mlx-swift-lm.
    private func upstreamCache(
        _ name: String, _ state: [MLXArray], _ strings: [String]
    ) throws -> any KVCache {
        // In plain caches and sliding-window caches, keys and values have the same shape.
        let heads = state.map { $0.shape.prefix(3) }
        let isPair = state.count == 2 && state.allSatisfy { $0.ndim == 4 } && heads[0] == heads[1]
        guard isPair || !name.hasSuffix("KVCache") else {
            throw H2OCacheError.damaged(reason: "a \(name) has arrays of \(state.map(\.shape))")
        }
        let cache: BaseKVCache
        switch name {
        case "KVCache":
            cache = KVCacheSimple()
            guard let used = strings.first.flatMap(Int.init), (0 ... state[0].dim(2)).contains(used) else {
                throw H2OCacheError.damaged(reason: "a \(name) has the strings \(strings)")
            }
            cache.state = state.map { $0[.ellipsis, ..<used, 0...] }
        case "ArraysCache":
            cache = MambaCache()
            cache.state = state
        case "RotatingKVCache":
            let values = strings.compactMap(Int.init)
            guard values.count == 4, strings.count == 4,
                values.allSatisfy({ 0 ..< Int(Int32.max) ~= $0 })
            else {
                throw H2OCacheError.damaged(reason: "a RotatingKVCache has the strings \(strings)")
            }
            let (offset, keep, size, next) = (values[0], values[1], values[2], values[3])
            cache = RotatingKVCache(maxSize: size, keep: keep)
            cache.state = state
            cache.metaState = [keep, size, 256, offset, next].map(String.init)
        default:
            let own = H2OKVCache.Kind.allCases.map(\.rawValue)
            throw H2OCacheError.otherFormat(found: name, known: (own + Self.classes).sorted())
        }
        return cache
    }
}
