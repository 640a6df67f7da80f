import Foundation
import MLX
import MLXLMCommon
import MLXNN

/// A model of two layers that writes given replies. Without a reply, the next token depends on all
/// rows in its caches, or, with a ``ChatTemplate``, the reply is empty. Everything except the
/// attention is computed here, so the model needs no weights.
package final class EchoModel: Module, PromptAtOnceModel, @unchecked Sendable {
    /// The token that ends a turn of a model without a ``ChatTemplate``.
    package static let stop = 1

    private let template: ChatTemplate?
    private let tokenizer: TestTokenizer
    /// The tokens that begin a reply.
    private let begin: [Int]
    /// The vectors of all tokens.
    private let vectors: [[Float]]

    /// The tokens of each call, in order, as long as ``recordsCalls`` is true.
    package private(set) var calls = [[Int]]()
    package var recordsCalls = true
    /// The caches of the last call, as far as they still exist. The model has only weak references
    /// to them, so that files of an archive are closed when their conversation is released.
    package var lastCaches: [any KVCache] { called.compactMap { $0.cache as? any KVCache } }
    private var called = [WeakCache]()
    /// Whether each layer has a list of caches, of which the first has a recurrent state.
    package var hasLists = false
    /// A function that is run at the beginning of each call.
    package var onCall: (() -> Void)?
    /// The next tokens that the model returns after single tokens. After them, its tokens depend on the attention.
    package var script = [Int]()
    /// The next replies, without the token that ends a turn.
    package var replies = [String]()
    private var reply = [Int]()
    /// As many of the tokens read last as begin a reply.
    private var last = [Int]()

    /// Bytes of an array of weights that the model does not use.
    package static let weightBytes = 40

    /// - Parameters:
    ///   - template: the chat template; nil for `<u:text|`
    ///   - thinks: whether the template lets the model think
    package init(_ template: ChatTemplate? = nil, thinks: Bool = true) {
        self.template = template
        tokenizer = template.map { TestTokenizer($0) } ?? TestTokenizer()
        begin = tokenizer.tokens(of: template?.begin(thinks: thinks) ?? "<a:")
        vectors = tokenizer.letters.indices.map { Self.vector($0, at: 0) }
        super.init()
    }

    package override func parameters() -> ModuleParameters {
        .unflattened(["scale": MLXArray([Float](repeating: 1, count: Self.weightBytes / 4))])
    }

    package func callAsFunction(_ inputs: MLXArray, cache: [any KVCache]?) -> MLXArray {
        onCall?()
        called = (cache ?? []).map { WeakCache(cache: $0 as AnyObject) }
        let tokens = inputs.asArray(Int32.self).map { Int($0) }
        if recordsCalls { calls.append(tokens) }
        last = (last + tokens).suffix(begin.count)
        if last == begin, !replies.isEmpty {
            reply = tokenizer.tokens(of: replies.removeFirst()) + [stop]
        }
        let offset = cache?.first.map { self.offset(of: $0) } ?? 0
        let rows = tokens.enumerated().map { Self.vector($1, at: offset + $0) }
        let array = { (factor: Float) in
            MLXArray(rows.flatMap { $0.map { $0 * factor } }, [1, 1, tokens.count, 8])
        }
        var output = array(1)
        for layer in cache ?? [] {
            let list = layer as? CacheList
            (list?[0] as? MambaCache)?.state = [MLXArray([Float(offset + tokens.count)])]
            let layer = list?[1] ?? layer
            let mask = layer.makeMask(n: tokens.count, windowSize: nil, returnArray: false)
            output = attentionWithCacheUpdate(
                queries: output, keys: array(1.5), values: array(1), cache: layer, scale: 1,
                mask: mask)
        }
        return logits(output.asArray(Float.self), count: tokens.count)
    }

    /// The loaded model, with its own tokenizer and chat template.
    package func context(hasTemplate: Bool = true) -> ModelContext {
        var configuration = ModelConfiguration(id: "echo", eosTokenIds: [stop])
        if template?.thinks == true {
            configuration.reasoningConfig = .thinkTagsWithEnableThinking
        }
        return ModelContext(
            configuration: configuration, model: self, processor: NoProcessor(),
            tokenizer: hasTemplate ? tokenizer : TestTokenizer(hasTemplate: false))
    }

    /// The tokens of each call, as text.
    package var readTexts: [String] {
        calls.map { tokenizer.decode(tokenIds: $0, skipSpecialTokens: false) }
    }

    /// All tokens that the model has read, as text.
    package var readText: String { readTexts.joined() }

    private var stop: Int { tokenizer.stop }

    package func newCache(parameters: GenerateParameters?) -> [any KVCache] {
        (0 ..< 2).map { _ in
            hasLists ? CacheList(MambaCache(), KVCacheSimple()) : KVCacheSimple()
        }
    }

    /// The recurrent state is the number of tokens.
    private func offset(of cache: any KVCache) -> Int {
        guard let list = cache as? CacheList else { return cache.offset }
        return list[0].state.first.flatMap { $0.asArray(Float.self).first.map { Int($0) } } ?? 0
    }

    private static func vector(_ token: Int, at position: Int) -> [Float] {
        (0 ..< 8).map { Float(sin(Double((token + 1) * ($0 + 1)) + 0.1 * Double(position))) }
    }

    private func logits(_ output: [Float], count: Int) -> MLXArray {
        var values = products(output, count: count)
        // The last token of a prompt is read alone.
        let scripted = count == 1 ? script.popFirst() : nil
        if let next = scripted ?? reply.popFirst() ?? (template == nil ? nil : stop) {
            values[(count - 1) * vectors.count + next] = 1000
        }
        return MLXArray(values, [1, count, vectors.count])
    }

    /// The products of each output with the vector of each token; -100 for the first two tokens.
    private func products(_ output: [Float], count: Int) -> [Float] {
        var values = [Float]()
        values.reserveCapacity(count * vectors.count)
        for first in stride(from: 0, to: count * 8, by: 8) {
            values += [-100, -100]
            for vector in vectors[2...] {
                var (sum, element) = (Float(0), 0)
                // Without optimization an iterator takes several times as long.
                while element < 8 {
                    sum += output[first + element] * vector[element]
                    element += 1
                }
                values.append(sum)
            }
        }
        return values
    }
}

extension [Int] {
    fileprivate mutating func popFirst() -> Int? { isEmpty ? nil : removeFirst() }
}

private struct WeakCache {
    weak var cache: AnyObject?
}

private struct NoProcessor: UserInputProcessor {
    func prepare(input: UserInput) async throws -> LMInput {
        throw CancellationError()
    }
}

/// Entries from any thread, in their order.
package final class Recorder<Entry: Sendable>: @unchecked Sendable {
    private let lock = NSLock()
    private var recorded = [Entry]()

    package init() {}

    package var entries: [Entry] { lock.withLock { recorded } }

    /// Returns the number of entries before this one.
    @discardableResult
    package func add(_ entry: Entry) -> Int {
        lock.withLock {
            recorded.append(entry)
            return recorded.count - 1
        }
    }
}
