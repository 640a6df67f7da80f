import Foundation
import H2OKit
import MLX
import MLXLMCommon
import XCTest

/// Runs the bundled model of mlx-swift-lm for `h2o-pack parity --level tokens`, which compares
/// the answer with mlx-lm's: `H2O_PARITY_TOKENS` names the folder with the request.
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
        var answer = ParityTokensAnswer()

        for text in request.texts {
            var said = ParityTokensAnswer.Text()
            do {
                said.ids = try text.ids(by: context.tokenizer)
            } catch {
                said.error = error.localizedDescription
            }
            answer.texts.append(said)
        }
        for asked in request.cases {
            let sampler = ParityTokensSampler(goingOnWith: asked.tokens)
            var said = ParityTokensAnswer.Case(name: asked.name)
            do {
                let caches = try generate(asked, of: request, by: sampler, with: context.model)
                let evicting = caches.map { $0 as? any H2OScoreTracking }
                said.evicting = evicting.map { $0 != nil }
                for (layer, cache) in evicting.enumerated() {
                    answer.arrays["\(asked.name).kept.\(layer)"] = cache?.positions
                }
            } catch {
                said.error = error.localizedDescription
            }
            said.tokens = sampler.tokens
            for (step, logits) in sampler.logits.enumerated() {
                answer.arrays["\(asked.name).\(step)"] = logits
                for (layer, positions) in sampler.kept[step].enumerated() {
                    answer.arrays["\(asked.name).kept.\(layer).\(step)"] = positions
                }
            }
            answer.cases.append(said)
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
            // The prompt's own step is one more than those after it.
            let tokens = try TokenIterator(
                input: LMInput(tokens: MLXArray(request.prompt, [request.prompt.count])),
                model: model, cache: caches, processor: nil, sampler: sampler,
                promptChunk: request.prefill, maxTokens: asked.tokens.count - 1)
            for _ in tokens {}
            return caches
        }
    }
}
