import Foundation
import H2OKit
import MLX
import MLXLMCommon
import XCTest

/// Runs the bundled model in mlx-swift-lm for `h2o-pack parity --level tokens`, which compares the
/// answer with mlx-lm's. `H2O_PARITY_TOKENS` names the folder with the request.
final class ParityTokensTests: XCTestCase {
    func testTheModelAnswersTheRequest() async throws {
        guard let path = ProcessInfo.processInfo.environment["H2O_PARITY_TOKENS"] else {
            throw XCTSkip(
                "H2O_PARITY_TOKENS names no request; `h2o-pack parity --level tokens` writes one.")
        }
        let folder = URL(filePath: path, directoryHint: .isDirectory)
        let request = try ParityTokensRequest(folder: folder)
        let context = try await LLMLoader().load(
            from: ModelFolder.find(), tokenizer: BundledTokenizerLoader())
        XCTAssertNil(context.tokenizer.convertTokenToId("a token that no vocabulary has"))
        var answer = ParityTokensAnswer()

        for text in request.texts {
            var textAnswer = ParityTokensAnswer.Text()
            do {
                textAnswer.ids = try text.ids(by: context.tokenizer)
            } catch {
                textAnswer.error = error.localizedDescription
            }
            answer.texts.append(textAnswer)
        }
        for tested in request.cases {
            print("running the model in mlx-swift-lm: \(tested.name)")
            let sampler = ParityTokensSampler(goingOnWith: tested.tokens)
            var caseAnswer = ParityTokensAnswer.Case(name: tested.name)
            do {
                let caches = try generate(tested, of: request, by: sampler, with: context.model)
                let evicting = caches.map { $0 as? H2OKVCache }
                caseAnswer.evicting = evicting.map { $0 != nil }
                for (layer, cache) in evicting.enumerated() {
                    answer.arrays["\(tested.name).kept.\(layer)"] = cache?.positions
                }
            } catch {
                caseAnswer.error = error.localizedDescription
            }
            caseAnswer.tokens = sampler.tokens
            for (step, logits) in sampler.logits.enumerated() {
                answer.arrays["\(tested.name).\(step)"] = logits
                for (layer, positions) in sampler.positions[step].enumerated() {
                    answer.arrays["\(tested.name).kept.\(layer).\(step)"] = positions
                }
            }
            answer.cases.append(caseAnswer)
        }

        try answer.write(to: folder)
    }

    /// - Returns: the caches after the last step
    private func generate(
        _ asked: ParityTokensRequest.Case, of request: ParityTokensRequest,
        by sampler: ParityTokensSampler, with model: any LanguageModel
    ) throws -> [any KVCache] {
        try withError {
            let caches = try asked.makeCaches(for: model)
            sampler.caches = caches
            // The prompt gives the first token, so `maxTokens` is one less than the number of
            // tokens.
            let tokens = try TokenIterator(
                input: LMInput(tokens: MLXArray(request.prompt, [request.prompt.count])),
                model: model, cache: caches, processor: nil, sampler: sampler,
                promptChunk: request.prefill, maxTokens: asked.tokens.count - 1)
            for _ in tokens {}
            return caches
        }
    }
}

/// The request of `h2o-pack parity --level tokens`, from `request.json`.
struct ParityTokensRequest: Decodable {
    let format: Int
    let prompt: [Int32]
    /// The most tokens of the prompt that the model reads at once.
    let prefill: Int
    let texts: [Text]
    let cases: [Case]

    /// A text, or a user's message that goes through the chat template.
    struct Text: Decodable {
        let text: String
        let isMessage: Bool

        private enum CodingKeys: String, CodingKey {
            case text
            case isMessage = "message"
        }

        func ids(by tokenizer: any MLXLMCommon.Tokenizer) throws -> [Int] {
            guard isMessage else { return tokenizer.encode(text: text, addSpecialTokens: true) }
            return try tokenizer.applyChatTemplate(messages: [["role": "user", "content": text]])
        }
    }

    struct Case: Decodable {
        let name: String
        let config: H2OConfiguration
        /// How rows are stored; nil for the model's own caches.
        let kv: H2OStorage?
        let groupSize: Int
        let budgets: H2OBudgets?
        /// The tokens that Python chose: after the prompt, and after each of these tokens.
        let tokens: [Int32]

        private enum CodingKeys: String, CodingKey {
            case name, config, kv, budgets, tokens
            case groupSize = "group_size"
        }

        func makeCaches(for model: any LanguageModel) throws -> [any KVCache] {
            guard let kv else { return try model.ownCaches() }
            return try H2OCaches(
                configuration: config, storage: kv, groupSize: groupSize,
                budgets: budgets
            ).makeCaches(for: model)
        }
    }

    static let format = 1

    init(folder: URL) throws {
        let data = try Data(contentsOf: folder.appending(path: "request.json"))
        self = try JSONDecoder().decode(Self.self, from: data)
        guard format == Self.format else {
            throw ParityTraceError.otherFormat(format, reads: Self.format)
        }
    }
}

/// The answer to the request: `answer.json`, and the arrays in `answer.safetensors`. These are the
/// logits `[1, vocabulary]`, named `case.step`, and the positions int32 `[B, Hkv, C]` that each
/// evicting cache keeps at the end, named `case.kept.layer`, and after each step, named
/// `case.kept.layer.step`.
struct ParityTokensAnswer: Encodable {
    let format = 1
    var texts = [Text]()
    var cases = [Case]()
    var arrays = [String: MLXArray]()

    struct Text: Encodable {
        var ids = [Int]()
        var error: String?
    }

    struct Case: Encodable {
        let name: String
        /// The likeliest token of each step.
        var tokens = [Int]()
        /// Whether each of the model's caches evicts.
        var evicting = [Bool]()
        var error: String?
    }

    private enum CodingKeys: String, CodingKey {
        case format, texts, cases
    }

    func write(to folder: URL) throws {
        try save(arrays: arrays, url: folder.appending(path: "answer.safetensors"))
        // Writes this file last, so that the arrays exist as soon as the file does.
        try JSONEncoder().encode(self).write(
            to: folder.appending(path: "answer.json"), options: .atomic)
    }
}

/// Records the logits and the likeliest token of each step, and continues with the given tokens, so
/// that every step can be compared.
final class ParityTokensSampler: LogitSampler {
    private let continuation: [Int32]
    private(set) var tokens = [Int]()
    private(set) var logits = [MLXArray]()
    /// The caches whose positions are recorded.
    var caches = [any KVCache]()
    /// The kept positions after each step, by cache; nil for a cache that does not evict.
    private(set) var positions = [[MLXArray?]]()

    init(goingOnWith continuation: [Int32]) {
        self.continuation = continuation
    }

    func sample(logits: MLXArray) -> MLXArray {
        let likeliest = ArgMaxSampler().sample(logits: logits)
        positions.append(caches.map { ($0 as? H2OKVCache)?.positions })
        eval([logits, likeliest] + positions[positions.count - 1].compactMap(\.self))
        let own = likeliest.asType(.int32).asArray(Int32.self)
        let step = tokens.count
        tokens += own.map(Int.init)
        self.logits.append(logits)
        return step < continuation.count ? MLXArray([continuation[step]], [1]) : likeliest
    }
}
