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
        var replies = [Reply?]()

        for (index, schema) in request.schemas.enumerated() {
            guard let schema else {
                replies.append(nil)
                continue
            }
            var options = H2OSession.Options(
                sampling: H2OSampling(temperature: index.isMultiple(of: 2) ? 0 : 1, seed: 1),
                maxTokens: request.maxTokens)
            var reply = Reply()
            do {
                options.schema = try H2OSchema(schema)
                var session = try await begun.fork()
                var started = clock()
                var guided: H2OSession.Response
                do {
                    guided = try await session.respond(to: request.question, options: options)
                } catch H2OSessionError.noRoomForSchema(let tokens, _) {
                    options.maxTokens = tokens
                    reply.room = tokens
                    session = try await begun.fork()
                    started = clock()
                    guided = try await session.respond(to: request.question, options: options)
                }
                reply.text = guided.text
                reply.guided = Reply.Cost(guided.usage, since: started)
                reply.evicted = await session.tokensSeen - request.rows
                if index.isMultiple(of: request.every) {
                    options.schema = nil
                    options.maxTokens = guided.usage.generatedTokens
                    let session = try await begun.fork()
                    let started = clock()
                    let plain = try await session.respond(to: request.question, options: options)
                    reply.plain = Reply.Cost(plain.usage, since: started)
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
        /// nil: the reply is known.
        let schemas: [String?]
    }

    private struct Reply: Encodable {
        var text = ""
        var error: String?
        /// The tokens that the schema's shortest instance may take, where those of the request
        /// were too few.
        var room: Int?
        var guided = Cost()
        /// As many tokens after the same prompt, without a schema; nil where not compared.
        var plain: Cost?
        /// Tokens that each cache had evicted at last.
        var evicted = 0

        struct Cost: Encodable {
            var tokens = 0
            /// Seconds until the first token.
            var first = 0.0
            /// Seconds of processor time, prompt and grammar included.
            var processor = 0.0

            init() {}

            init(_ usage: H2OSession.Usage, since started: clock_t) {
                tokens = usage.generatedTokens
                first = usage.timeToFirstToken / .seconds(1)
                processor = Double(clock() - started) / Double(CLOCKS_PER_SEC)
            }
        }
    }
}

/// What the first schemas of a process take with the tokenizer in the folder that
/// `H2O_VOCABULARY` names; `python -m studies.guided` writes it and reads the report.
final class SchemaStartTests: XCTestCase {
    func testTheFirstSchemasTakeTheTimeThatIsReported() async throws {
        guard let path = ProcessInfo.processInfo.environment["H2O_VOCABULARY"] else {
            throw XCTSkip("H2O_VOCABULARY names no tokenizer; `python -m studies.guided` does.")
        }
        let folder = URL(filePath: path, directoryHint: .isDirectory)
        let tokenizer = try await BundledTokenizerLoader().load(from: folder)
        let stop = try XCTUnwrap(tokenizer.eosTokenId)
        let grammars = SchemaGrammars(tokenizer: tokenizer, endOfTurn: stop, stops: [stop])
        let schemas = [
            #"{"type": "object", "properties": {"city": {"type": "string"}}}"#,
            #"{"type": "array", "items": {"type": "number", "minimum": 3}}"#,
        ]

        let seconds = try schemas.map { text in
            let schema = try H2OSchema(text)
            let started = clock()
            _ = try grammars.processor(for: schema, atMost: 160)
            return Double(clock() - started) / Double(CLOCKS_PER_SEC)
        }

        try JSONEncoder().encode(seconds).write(to: folder.appending(path: "seconds.json"))
    }
}
