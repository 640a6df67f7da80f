import Foundation
import H2OKit
import H2OSessions
import MLXLMCommon
import XCTest

/// Holds the bundled model of mlx-swift-lm to the schemas of `python -m studies.guided`, which
/// checks the replies: `H2O_SCHEMAS` names the folder with the request.
final class SchemaRunTests: XCTestCase {
    func testTheModelRepliesToTheRequest() async throws {
        guard let path = ProcessInfo.processInfo.environment["H2O_SCHEMAS"] else {
            throw XCTSkip("H2O_SCHEMAS names no request; `python -m studies.guided` writes one.")
        }
        let folder = URL(filePath: path, directoryHint: .isDirectory)
        let request = try JSONDecoder().decode(
            Request.self, from: Data(contentsOf: folder.appending(path: "request.json")))
        let context = try await LLMLoader().load(
            from: ModelFolder.find(), tokenizer: BundledTokenizerLoader())
        let caches = H2OCaches(
            configuration: try H2OConfiguration(maxSize: request.rows, recentBudget: 8))
        let model = H2OModel(context: context, caches: caches)
        let begun = model.makeSession(options: .init(sampling: .greedy, maxTokens: 1))
        _ = try await begun.respond(to: request.prompt)
        var replies = [Reply]()

        for (index, schema) in request.schemas.enumerated() {
            var options = H2OSession.Options(
                sampling: H2OSampling(temperature: index.isMultiple(of: 2) ? 0 : 1, seed: 1),
                maxTokens: request.maxTokens)
            var reply = Reply()
            do {
                options.schema = try H2OSchema(schema)
                let session = try await begun.fork()
                let guided = try await session.respond(to: request.question, options: options)
                reply.text = guided.text
                reply.guided = Reply.Cost(guided.usage)
                reply.evicted = await session.tokensSeen - request.rows
                if index.isMultiple(of: request.every) {
                    options.schema = nil
                    options.maxTokens = guided.usage.generatedTokens
                    let plain = try await begun.fork()
                        .respond(to: request.question, options: options)
                    reply.plain = Reply.Cost(plain.usage)
                }
            } catch {
                reply.error = "\(error)"
            }
            replies.append(reply)
        }

        try JSONEncoder().encode(replies).write(
            to: folder.appending(path: "replies.json"), options: .atomic)
    }

    private struct Request: Decodable {
        /// Read once; each reply is one to the question after it.
        let prompt: String
        let question: String
        let rows: Int
        let maxTokens: Int
        /// How many replies there are for each that is compared with one without a schema.
        let every: Int
        let schemas: [String]
    }

    private struct Reply: Encodable {
        var text = ""
        var error: String?
        var guided = Cost()
        /// As many tokens after the same prompt, without a schema; nil where not compared.
        var plain: Cost?
        /// Tokens that each cache had evicted at last.
        var evicted = 0

        struct Cost: Encodable {
            var tokens = 0
            /// Seconds until the first token, and from it on.
            var first = 0.0
            var rest = 0.0

            init() {}

            init(_ usage: H2OSession.Usage) {
                tokens = usage.generatedTokens
                first = usage.timeToFirstToken / .seconds(1)
                rest = (usage.duration - usage.timeToFirstToken) / .seconds(1)
            }
        }
    }
}
