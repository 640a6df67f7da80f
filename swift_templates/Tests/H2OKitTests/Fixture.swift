import Foundation
import H2OKit
import MLX
import MLXLMCommon
import MLXNN
import XCTest

/// Small heads with G = 2 query heads per KV head.
enum Heads {
    static let kv = 2
    static let queries = 4
    static let keyDim = 32
    static let valueDim = 32
    static let scale: Float = 0.18
}

/// The queries, keys and values of some tokens. They are the same for the same seed.
struct Tokens {
    let queries: MLXArray
    let keys: MLXArray
    let values: MLXArray
}

extension Tokens {
    init(_ count: Int, seed: UInt64) {
        var generator = Generator(state: seed)
        func array(_ heads: Int, _ dim: Int) -> MLXArray {
            let values = (0 ..< heads * count * dim).map { _ in generator.next() }
            return MLXArray(values, [1, heads, count, dim])
        }
        queries = array(Heads.queries, Heads.keyDim)
        keys = array(Heads.kv, Heads.keyDim)
        values = array(Heads.kv, Heads.valueDim)
    }
}

/// Numbers in -1...1 from a linear congruential generator.
private struct Generator {
    var state: UInt64

    mutating func next() -> Float {
        state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        return Float(state >> 40) / Float(1 << 23) - 1
    }
}

extension H2OStorage {
    /// Makes an empty cache whose group size divides the small head dims.
    func makeCache(
        maxSize: Int, heavyBudget: Int? = nil, recentBudget: Int? = nil
    ) throws -> H2OKVCache {
        let configuration = try H2OConfiguration(
            maxSize: maxSize, heavyBudget: heavyBudget, recentBudget: recentBudget)
        return try makeCache(configuration, groupSize: 32)
    }

    /// Makes a cache with C = 16 that has read random tokens.
    func filledCache(_ tokens: Int = 40) throws -> H2OKVCache {
        let cache = try makeCache(maxSize: 16)
        cache.attend(Tokens(tokens, seed: 1))
        return cache
    }
}

extension H2OKVCache {
    /// Makes a cache of rows in 16 bits.
    convenience init(maxSize: Int, recentBudget: Int? = nil, sinkSize: Int = 4) throws {
        self.init(
            try H2OConfiguration(
                maxSize: maxSize, sinkSize: sinkSize, recentBudget: recentBudget), .dense)
    }

    /// Adds all tokens in one call, and returns their attention.
    @discardableResult
    func attend(_ tokens: Tokens) -> [Float] {
        let mask = makeMask(n: tokens.keys.dim(2), windowSize: nil, returnArray: false)
        return attend(
            queries: tokens.queries, keys: tokens.keys, values: tokens.values,
            scale: Heads.scale, mask: mask
        ).asArray(Float.self)
    }

    /// Adds random tokens one after the other, and returns their attention.
    @discardableResult
    func attendOneByOne(_ count: Int, seed: UInt64) -> [[Float]] {
        (0 ..< count).map { attend(Tokens(1, seed: seed + UInt64($0))) }
    }

    /// The kept positions of each KV head, sorted.
    var keptPositions: [[Int]] {
        guard let positions else { return [] }
        let all = positions.asArray(Int32.self).map(Int.init)
        let rows = positions.dim(2)
        return stride(from: 0, to: all.count, by: rows).map { start in
            all[start ..< start + rows].filter { $0 >= 0 }.sorted()
        }
    }
}

/// A model in which a token is also its query, key and value. `make` makes its caches, and
/// its logits are the attention of its last layer.
class TinyModel: Module, PromptAtOnceModel {
    private let make: () -> [any KVCache]

    /// The caches of the last call of the model.
    private(set) var lastCaches = [any KVCache]()

    init(_ make: @escaping () -> [any KVCache]) {
        self.make = make
        super.init()
    }

    func newCache(parameters: GenerateParameters?) -> [any KVCache] { make() }

    func callAsFunction(_ inputs: MLXArray, cache: [any KVCache]?) -> MLXArray {
        lastCaches = cache ?? []
        let ids = inputs.asArray(Int32.self)
        let tokens = Tokens(ids.count, seed: UInt64(ids[0]) + UInt64(lastCaches.first?.offset ?? 0))
        let outputs = lastCaches.map { cache in
            attentionWithCacheUpdate(
                queries: tokens.queries, keys: tokens.keys, values: tokens.values, cache: cache,
                scale: Heads.scale, mask: ids.count > 1 ? .causal : .none
            ).asArray(Float.self)
        }
        let firstHead = outputs.last?.prefix(ids.count * Heads.valueDim) ?? []
        return MLXArray(Array(firstHead), [1, ids.count, Heads.valueDim])
    }
}

/// A model with the name of a family that needs all rows.
final class Gemma2Model: TinyModel {}

/// A model with the name of a family that cannot evict if it has layers with a sliding window.
final class Exaone4Model: TinyModel {}

extension H2OCacheFile {
    static func save(
        _ caches: [any KVCache], to file: URL, metadata: [String: String] = [:]
    ) throws {
        try computed(caches, metadata: metadata).write(to: file)
    }
}

/// The base class of tests that each need a new folder, which is deleted after the test.
class FolderTestCase: XCTestCase {
    let folder = FileManager.default.temporaryDirectory
        .appending(path: UUID().uuidString, directoryHint: .isDirectory)

    override func setUpWithError() throws {
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    }

    override func tearDownWithError() throws {
        try? FileManager.default.removeItem(at: folder)
    }

    /// Writes a file to the folder, and makes the folders on its path.
    @discardableResult
    func write(_ text: String, to path: String) throws -> URL {
        let file = folder.appending(path: path)
        try FileManager.default.createDirectory(
            at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
        try Data(text.utf8).write(to: file)
        return file
    }
}
