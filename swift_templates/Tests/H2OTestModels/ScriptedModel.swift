import MLX
import MLXLMCommon
import MLXNN

/// A model that writes its next reply whenever the tokens that it has read end with the beginning
/// of a reply.
package final class ScriptedModel: Module, PromptAtOnceModel, @unchecked Sendable {
    private let tokenizer: TemplateTokenizer
    private let begin: [Int]
    private let stop: Int
    private var upcoming = [Int]()

    /// All tokens that the model has read, in order.
    package private(set) var readTokens = [Int]()
    /// The replies, in order, without the token that ends a turn.
    package var replies = [String]()
    /// A function that each call of the model runs, with all text that the model has read.
    package var onCall: ((String) -> Void)?

    package init(_ template: ChatTemplate, thinks: Bool = true) {
        tokenizer = TemplateTokenizer(template)
        stop = tokenizer.convertTokenToId(template.stop) ?? 0
        begin = tokenizer.encode(text: template.begin(thinks: thinks), addSpecialTokens: false)
    }

    package func callAsFunction(_ inputs: MLXArray, cache: [any KVCache]?) -> MLXArray {
        let tokens = inputs.asArray(Int32.self).map { Int($0) }
        readTokens += tokens
        onCall?(tokenizer.decode(tokenIds: readTokens, skipSpecialTokens: false))
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
        if readTokens.suffix(begin.count) == begin[...], !replies.isEmpty {
            upcoming = tokenizer.encode(
                text: replies.removeFirst() + tokenizer.template.stop, addSpecialTokens: false)
        }
        // If no reply is left, the reply is empty.
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
