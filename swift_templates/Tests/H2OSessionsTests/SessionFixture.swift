import Foundation
import H2OKit
import H2OSessions
import MLX
import MLXLMCommon
import MLXNN
import XCTest

/// A model of two layers whose next token depends on all rows that its cache keeps. Its
/// arithmetic but the attention is done here, so that it needs no weights.
final class EchoModel: Module, PromptAtOnceModel, @unchecked Sendable {
    static let vocabulary = LetterTokenizer.letters.count
    /// Ends a turn.
    static let stop = 1

    /// The tokens of each call, in order.
    private(set) var calls = [[Int]]()
    /// The caches of the last call.
    private(set) var given = [any KVCache]()
    /// Called at the begin of each call.
    var onCall: (() -> Void)?
    /// Given out in this order, then a token that depends on the attention.
    var script = [Int]()

    func callAsFunction(_ inputs: MLXArray, cache: [any KVCache]?) -> MLXArray {
        onCall?()
        given = cache ?? []
        let tokens = inputs.asArray(Int32.self).map { Int($0) }
        calls.append(tokens)
        let offset = cache?.first?.offset ?? 0
        let rows = tokens.enumerated().map { row($1, at: offset + $0) }
        let array = { (factor: Float) in
            MLXArray(rows.flatMap { $0.map { $0 * factor } }, [1, 1, tokens.count, 8])
        }
        var output = array(1)
        for layer in cache ?? [] {
            let mask = layer.makeMask(n: tokens.count, windowSize: nil, returnArray: false)
            output = attentionWithCacheUpdate(
                queries: output, keys: array(1.5), values: array(1), cache: layer, scale: 1,
                mask: mask)
        }
        return logits(output.asArray(Float.self), count: tokens.count)
    }

    func newCache(parameters: GenerateParameters?) -> [any KVCache] {
        [KVCacheSimple(), KVCacheSimple()]
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
        if !script.isEmpty {
            values[(count - 1) * Self.vocabulary + script.removeFirst()] = 1000
        }
        return MLXArray(values, [1, count, Self.vocabulary])
    }
}

/// One token a character, and a chat template of the form `<u:text|`.
struct LetterTokenizer: Tokenizer {
    /// Whether there is a chat template; `|` ends a turn in it.
    var hasTemplate = true

    static let letters = Array("?|<>:abcdefghijklmnopqrstuvwxyz .\n01")

    let bosToken: String? = nil
    let eosToken: String? = "|"
    let unknownToken: String? = "?"

    func encode(text: String, addSpecialTokens: Bool) -> [Int] {
        text.map { Self.letters.firstIndex(of: $0) ?? 0 }
    }

    func decode(tokenIds: [Int], skipSpecialTokens: Bool) -> String {
        String(tokenIds.map { Self.letters[$0] })
    }

    func convertTokenToId(_ token: String) -> Int? {
        token.first.flatMap(Self.letters.firstIndex)
    }

    func convertIdToToken(_ id: Int) -> String? { String(Self.letters[id]) }

    func applyChatTemplate(
        messages: [[String: any Sendable]], tools: [[String: any Sendable]]?,
        additionalContext: [String: any Sendable]?
    ) throws -> [Int] {
        guard hasTemplate else { throw TokenizerError.missingChatTemplate }
        let said = messages.map { message in
            let role = (message["role"] as? String)?.prefix(1) ?? "?"
            return "<\(role):\(message["content"] as? String ?? "")|\n"
        }
        return encode(text: said.joined() + "<a:", addSpecialTokens: false)
    }
}

struct NoProcessor: UserInputProcessor {
    func prepare(input: UserInput) async throws -> LMInput {
        throw CancellationError()
    }
}

/// A session on an ``EchoModel``, and the model to look at.
struct SessionFixture {
    let model = EchoModel()
    let background = BackgroundGuard()
    var configuration: H2OConfiguration
    var instructions: String?
    var maxTokens = 6
    var promptChunk = 512
    var hasTemplate = true
    var archives = ArchiveFolders.system
    var archiveInFiles = false

    init(maxSize: Int = 64) throws {
        configuration = try H2OConfiguration(maxSize: maxSize, recentBudget: 8)
    }

    func makeModel() -> H2OModel {
        let context = ModelContext(
            configuration: ModelConfiguration(id: "echo", eosTokenIds: [EchoModel.stop]),
            model: model, processor: NoProcessor(),
            tokenizer: LetterTokenizer(hasTemplate: hasTemplate))
        return H2OModel(
            context: context, caches: H2OCaches(configuration: configuration),
            archiveInFiles: archiveInFiles, promptChunk: promptChunk, plan: nil,
            platform: H2OPlatform(
                memory: MemoryGuard { 1 << 30 }, background: background, archives: archives,
                elapsed: { .zero }))
    }

    func makeSession() -> H2OSession {
        makeModel().makeSession(
            instructions: instructions,
            options: H2OSession.Options(sampling: .greedy, maxTokens: maxTokens))
    }
}

extension H2OSession {
    /// All parts of a streamed reply.
    func parts(to prompt: String) async throws -> [Part] {
        var parts = [Part]()
        for try await part in streamResponse(to: prompt) { parts.append(part) }
        return parts
    }
}

extension H2OSession.Part {
    var text: String? {
        if case .text(let text) = self { text } else { nil }
    }

    var usage: H2OSession.Usage? {
        if case .usage(let usage) = self { usage } else { nil }
    }
}

func tokenArray(_ tokens: [Int]) -> MLXArray { MLXArray(tokens.map { Int32($0) }) }

/// `XCTAssertThrowsError` for an expression that waits.
func assertThrows<T>(
    _ expression: @autoclosure () async throws -> T, line: UInt = #line,
    file: StaticString = #filePath, check: (any Error) -> Void
) async {
    do {
        _ = try await expression()
        XCTFail("nothing was thrown", file: file, line: line)
    } catch {
        check(error)
    }
}
