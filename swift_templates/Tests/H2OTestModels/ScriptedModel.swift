import MLX
import MLXLMCommon
import MLXNN

/// A model that says what it is told to, whenever the tokens that it has read end with the
/// begin of a reply.
package final class ScriptedModel: Module, PromptAtOnceModel, @unchecked Sendable {
    private let tokenizer: TemplateTokenizer
    private let begin: [Int]
    private let stop: Int
    private var upcoming = [Int]()

    /// All tokens that it was given, in order.
    package private(set) var given = [Int]()
    /// What it says, one reply after the other, without the token that ends a turn.
    package var replies = [String]()
    /// Called with all text that it was given, at each call.
    package var onCall: ((String) -> Void)?

    package init(_ template: ChatTemplate, thinks: Bool = true) {
        tokenizer = TemplateTokenizer(template)
        stop = tokenizer.convertTokenToId(template.stop) ?? 0
        begin = tokenizer.encode(text: template.begin(thinks: thinks), addSpecialTokens: false)
    }

    package func callAsFunction(_ inputs: MLXArray, cache: [any KVCache]?) -> MLXArray {
        let tokens = inputs.asArray(Int32.self).map { Int($0) }
        given += tokens
        onCall?(tokenizer.decode(tokenIds: given, skipSpecialTokens: false))
        for layer in cache ?? [] {
            let rows = MLXArray(
                tokens.flatMap { token in (0 ..< 8).map { Float((token + $0) % 7) / 7 } },
                [1, 1, tokens.count, 8])
            let mask = layer.makeMask(n: tokens.count, windowSize: nil, returnArray: false)
            eval([
                attentionWithCacheUpdate(
                    queries: rows, keys: rows, values: rows, cache: layer, scale: 1, mask: mask)
            ])
        }
        if given.suffix(begin.count) == begin[...], !replies.isEmpty {
            upcoming = tokenizer.encode(
                text: replies.removeFirst() + tokenizer.template.stop, addSpecialTokens: false)
        }
        // A reply that nobody wrote ends at once.
        return logits(upcoming.isEmpty ? stop : upcoming.removeFirst(), count: tokens.count)
    }

    package func newCache(parameters: GenerateParameters?) -> [any KVCache] {
        [KVCacheSimple(), KVCacheSimple()]
    }

    private func logits(_ token: Int, count: Int) -> MLXArray {
        let vocabulary = TemplateTokenizer.tokens.count
        var values = [Float](repeating: 0, count: count * vocabulary)
        values[(count - 1) * vocabulary + token] = 1000
        return MLXArray(values, [1, count, vocabulary])
    }
}
