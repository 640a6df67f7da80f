import Foundation
import MLX
import MLXLMCommon
import MLXNN

/// A model of two layers whose next token depends on all rows in its caches. Everything except the
/// attention is computed here, so the model needs no weights.
package final class EchoModel: Module, PromptAtOnceModel, @unchecked Sendable {
    package static let vocabulary = LetterTokenizer.letters.count
    /// The token that ends a turn.
    package static let stop = 1

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
    /// The next tokens that the model returns. After them, its tokens depend on the attention.
    package var script = [Int]()
    /// The next replies of the model. Each begins after the template's `<a:`.
    package var replies = [String]()
    private var reply = [Int]()

    /// Bytes of an array of weights that the model does not use.
    package static let weightBytes = 40

    package override func parameters() -> ModuleParameters {
        .unflattened(["scale": MLXArray([Float](repeating: 1, count: Self.weightBytes / 4))])
    }

    package func callAsFunction(_ inputs: MLXArray, cache: [any KVCache]?) -> MLXArray {
        onCall?()
        called = (cache ?? []).map { WeakCache(cache: $0 as AnyObject) }
        let tokens = inputs.asArray(Int32.self).map { Int($0) }
        if recordsCalls { calls.append(tokens) }
        if tokens.suffix(3) == LetterTokenizer.begin[...], !replies.isEmpty {
            reply = LetterTokenizer().encode(text: replies.removeFirst(), addSpecialTokens: false)
        }
        let offset = cache?.first.map { self.offset(of: $0) } ?? 0
        let rows = tokens.enumerated().map { row($1, at: offset + $0) }
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
        ModelContext(
            configuration: ModelConfiguration(id: "echo", eosTokenIds: [Self.stop]), model: self,
            processor: NoProcessor(), tokenizer: LetterTokenizer(hasTemplate: hasTemplate))
    }

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

    private func row(_ token: Int, at position: Int) -> [Float] {
        (0 ..< 8).map { Float(sin(Double((token + 1) * ($0 + 1)) + 0.1 * Double(position))) }
    }

    private func logits(_ output: [Float], count: Int) -> MLXArray {
        var values = (0 ..< count).flatMap { index in
            (0 ..< Self.vocabulary).map { token -> Float in
                if token < 2 { return -100 }
                return zip(output[index * 8 ..< index * 8 + 8], row(token, at: 0))
                    .reduce(0) { $0 + $1.0 * $1.1 }
            }
        }
        if let next = script.popFirst() ?? reply.popFirst() {
            values[(count - 1) * Self.vocabulary + next] = 1000
        }
        return MLXArray(values, [1, count, Self.vocabulary])
    }
}

extension [Int] {
    fileprivate mutating func popFirst() -> Int? { isEmpty ? nil : removeFirst() }
}

private struct WeakCache {
    weak var cache: AnyObject?
}

/// A tokenizer in which each character is a token, with a chat template of the form `<u:text|`.
package struct LetterTokenizer: Tokenizer {
    /// Whether there is a chat template; `|` ends a turn in it.
    package let hasTemplate: Bool

    private let letters: [Character]
    private let onDecode: @Sendable () -> Void

    /// - Parameter onDecode: a function that each decoding runs
    package init(
        hasTemplate: Bool = true, letters: [Character] = letters,
        onDecode: @escaping @Sendable () -> Void = {}
    ) {
        self.hasTemplate = hasTemplate
        self.letters = letters
        self.onDecode = onDecode
    }

    /// The tokens that begin a reply.
    package static let begin = LetterTokenizer().encode(text: "<a:", addSpecialTokens: false)

    package static let letters = Array("?|<>:abcdefghijklmnopqrstuvwxyz .\n01")

    package let bosToken: String? = nil
    package let eosToken: String? = "|"
    package let unknownToken: String? = "?"

    package func encode(text: String, addSpecialTokens: Bool) -> [Int] {
        text.map { letters.firstIndex(of: $0) ?? 0 }
    }

    package func decode(tokenIds: [Int], skipSpecialTokens: Bool) -> String {
        onDecode()
        return String(tokenIds.map { letters[$0] })
    }

    package func convertTokenToId(_ token: String) -> Int? {
        token.count == 1 ? token.first.flatMap(letters.firstIndex) : nil
    }

    package func convertIdToToken(_ id: Int) -> String? {
        letters.indices.contains(id) ? String(letters[id]) : nil
    }

    package func applyChatTemplate(
        messages: [[String: any Sendable]], tools: [[String: any Sendable]]?,
        additionalContext: [String: any Sendable]?
    ) throws -> [Int] {
        guard hasTemplate else { throw TokenizerError.missingChatTemplate }
        let turns = messages.map { message in
            let role = (message["role"] as? String)?.prefix(1) ?? "?"
            return "<\(role):\(message["content"] as? String ?? "")|\n"
        }
        return encode(text: turns.joined() + "<a:", addSpecialTokens: false)
    }
}

package struct NoProcessor: UserInputProcessor {
    package init() {}

    package func prepare(input: UserInput) async throws -> LMInput {
        throw CancellationError()
    }
}
