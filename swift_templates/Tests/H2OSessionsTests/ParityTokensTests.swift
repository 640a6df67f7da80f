import Foundation
import H2OKit
import H2OTestModels
import MLX
import MLXLMCommon
import MLXNN
import XCTest

@testable import H2OSessions

/// Lets sessions with the bundled model have the conversation of `h2o-pack parity --level tokens`,
/// which compares what their caches read and what the model wrote with mlx-lm.
/// `H2O_PARITY_TOKENS` names the folder with the request.
final class ParityTokensTests: FolderTestCase {
    func testSessionsHaveTheConversationOfTheRequest() async throws {
        guard let path = ProcessInfo.processInfo.environment["H2O_PARITY_TOKENS"] else {
            throw XCTSkip(
                "H2O_PARITY_TOKENS names no request; `h2o-pack parity --level tokens` writes one.")
        }
        let request = try ParityRequest(folder: URL(filePath: path, directoryHint: .isDirectory))
        let source = try ModelFolder.find()
        let manifest = try ModelManifest.check(source)
        let context = try await LLMLoader().load(from: source, tokenizer: BundledTokenizerLoader())
        XCTAssertNil(context.tokenizer.convertTokenToId("a token that no vocabulary has"))
        try LoadedAdapter.bundled(in: source)?.adapter.load(into: context.model)
        let model = ParityModel(
            recorded: RecordedModel(context.model), configuration: context.configuration,
            tokenizer: context.tokenizer, manifest: manifest, facts: ModelFacts(in: source),
            archives: folder.appending(path: "archives", directoryHint: .isDirectory))

        var answer = ParityAnswer()
        for tested in request.cases {
            print("having the conversation in the session: \(tested.name)")
            await answer.add(tested, of: request, with: model, in: folder)
        }
        try answer.write(to: request.folder)
    }

    /// The stand-in has no models, so there this shows what the test above does.
    func testASessionThatWasSavedAndWentBackReadsAndWritesTheSame() async throws {
        let echo = EchoModel()
        let context = echo.context()
        let model = ParityModel(
            recorded: RecordedModel(echo), configuration: context.configuration,
            tokenizer: context.tokenizer, archives: folder)
        let tested = ParityRequest.Case(
            name: "own", config: try H2OConfiguration(maxSize: 32, recentBudget: 8),
            kv: .sixteenBits, groupSize: 64, budgets: nil, returns: true)
        let request = ParityRequest(
            folder: folder, instructions: "be brief", tools: false, thinking: nil,
            turns: [String](repeating: "one two three", count: 3), maxTokens: 5, cases: [tested])

        var answer = ParityAnswer()
        await answer.add(tested, of: request, with: model, in: folder)

        let own = try XCTUnwrap(answer.cases.first)
        XCTAssertNil(own.error)
        XCTAssertEqual(own.evicting, [true, true])
        XCTAssertGreaterThan(own.pinned.upperBound, 0)
        XCTAssertEqual(own.steps, own.straight)
        var count = 0
        for step in own.steps {
            let chosen: Int?
            switch step {
            case .read(let ids): (count, chosen) = (count + ids.count, nil)
            case .generated(let id): (count, chosen) = (count + 1, id)
            }
            guard let chosen else { continue }
            let logits = try XCTUnwrap(answer.arrays["own.\(count - 1)"])
            XCTAssertEqual(ArgMaxSampler().sample(logits: logits).item(Int.self), chosen)
            for layer in 0 ..< 2 {
                let kept = try XCTUnwrap(answer.arrays["own.kept.\(layer).\(count)"])
                let newest = kept.asArray(Int32.self).max()
                XCTAssertEqual(newest, Int32(count - 1), "the token just read is kept")
            }
        }
        XCTAssertGreaterThan(count, 64, "rows were evicted")
        try answer.write(to: folder)
    }
}

/// The request of `h2o-pack parity --level tokens`, from `request.json`.
struct ParityRequest {
    static let format = 2

    let folder: URL
    let instructions: String?
    /// Whether the session has a tool.
    let tools: Bool
    /// Whether the model thinks; nil for a model that cannot be told.
    let thinking: Bool?
    /// The user's messages.
    let turns: [String]
    /// The most tokens of a reply.
    let maxTokens: Int
    let cases: [Case]

    struct Case: Decodable {
        let name: String
        let config: H2OConfiguration
        let kv: H2OStorage
        let groupSize: Int
        let budgets: H2OBudgets?
        /// Whether a second session prewarms, goes back before its last but one reply, and is saved
        /// and restored; its archive is in files. The answer then is of this session.
        let returns: Bool

        enum CodingKeys: String, CodingKey {
            case name, config, kv, budgets, returns
            case groupSize = "group_size"
        }
    }

    private struct File: Decodable {
        let format: Int
        let instructions: String?
        let tools: Bool
        let thinking: Bool?
        let turns: [String]
        let maxTokens: Int
        let cases: [Case]

        enum CodingKeys: String, CodingKey {
            case format, instructions, tools, thinking, turns, cases
            case maxTokens = "max_tokens"
        }
    }
}

extension ParityRequest {
    init(folder: URL) throws {
        let data = try Data(contentsOf: folder.appending(path: "request.json"))
        let file = try JSONDecoder().decode(File.self, from: data)
        guard file.format == Self.format else {
            throw DecodingError.dataCorrupted(
                DecodingError.Context(
                    codingPath: [],
                    debugDescription: "the request has format \(file.format), not \(Self.format)"))
        }
        self.init(
            folder: folder, instructions: file.instructions, tools: file.tools,
            thinking: file.thinking, turns: file.turns, maxTokens: file.maxTokens,
            cases: file.cases)
    }

    var options: H2OSession.Options {
        // The penalty of generation_config.json would change logits.
        H2OSession.Options(
            sampling: H2OSampling(temperature: 0, repetitionPenalty: 1), maxTokens: maxTokens,
            thinking: thinking)
    }

    /// Python writes the same tool into its prompt.
    var sessionTools: [H2OTool] {
        struct Place: Decodable { let city: String }
        let weather = H2OTool(
            name: "weather", description: "Tells the weather of a city.",
            parameters: [.required("city", type: .string, description: "The city's name")]
        ) { (place: Place) in
            "It is sunny in \(place.city)."
        }
        return tools ? [weather] : []
    }
}

/// A model for any number of sessions, one after the other.
struct ParityModel {
    let recorded: RecordedModel
    let configuration: ModelConfiguration
    let tokenizer: any MLXLMCommon.Tokenizer
    var manifest: ModelManifest?
    var facts = ModelFacts()
    let archives: URL

    func with(_ tested: ParityRequest.Case, archiveInFiles: Bool) -> H2OModel {
        let caches = H2OCaches(
            configuration: tested.config, storage: tested.kv, groupSize: tested.groupSize,
            budgets: tested.budgets)
        var platform = H2OPlatform()
        platform.archives = archives
        let context = ModelContext(
            configuration: configuration, model: recorded, processor: NoInput(),
            tokenizer: tokenizer)
        return H2OModel(
            LoadedModel(
                context: context, manifest: manifest, caches: caches,
                archiveInFiles: archiveInFiles,
                promptChunk: manifest?.promptChunk ?? 512, facts: facts, platform: platform))
    }
}

private struct NoInput: UserInputProcessor {
    func prepare(input: UserInput) async throws -> LMInput { throw CancellationError() }
}

/// A model whose logits and caches are recorded after each call with one token.
final class RecordedModel: Module, LanguageModel, @unchecked Sendable {
    private let model: any LanguageModel
    /// By the number of tokens that the caches have read. What is read again replaces what was
    /// recorded.
    private(set) var records = [Int: Record]()

    struct Record {
        /// `[1, vocabulary]`
        let logits: MLXArray
        /// The kept positions, int32 `[B, Hkv, C]`, by cache; nil for a cache that does not evict.
        let kept: [MLXArray?]
    }

    init(_ model: any LanguageModel) {
        self.model = model
        super.init()
    }

    func clear() { records = [:] }

    func prepare(
        _ input: LMInput, cache: [any KVCache], state: LMOutput.State?, prefill: PrefillParameters
    ) throws -> PrepareResult {
        try model.prepare(input, cache: cache, state: state, prefill: prefill)
    }

    func newCache(parameters: GenerateParameters?) throws -> [any KVCache] {
        try model.newCache(parameters: parameters)
    }

    func callAsFunction(_ inputs: MLXArray, cache: [any KVCache]?) -> MLXArray {
        model(inputs, cache: cache)
    }

    func callAsFunction(
        _ input: LMInput.Text, cache: [any KVCache]?, state: LMOutput.State?
    ) -> LMOutput {
        let output = model(input, cache: cache, state: state)
        let caches = cache ?? []
        guard input.tokens.size == 1, let count = caches.evicting.first?.offset else {
            return output
        }
        let record = Record(
            logits: output.logits.squeezed(axis: 1),
            kept: caches.map { ($0 as? H2OKVCache)?.positions })
        eval([record.logits] + record.kept.compactMap(\.self))
        records[count] = record
        return output
    }
}

/// The answer to the request: `answer.json`, and the arrays in `answer.safetensors`, for each number
/// of tokens after which a single token was read: the logits `[1, vocabulary]`, named `case.count`,
/// and the positions int32 `[B, Hkv, C]` that each evicting cache keeps, named
/// `case.kept.layer.count`.
struct ParityAnswer: Encodable {
    let format = ParityRequest.format
    var cases = [Case]()
    var arrays = [String: MLXArray]()

    struct Case: Encodable {
        let name: String
        /// What made the caches at the end of the conversation.
        var steps = [H2OTrace.Step]()
        /// The steps of another session, which read the same conversation from its beginning. Only
        /// for a case whose session went back and was restored.
        var straight: [H2OTrace.Step]?
        /// Positions of the system prompt.
        var pinned = 0 ..< 0
        /// Whether each of the model's caches evicts.
        var evicting = [Bool]()
        var error: String?
    }

    private enum CodingKeys: String, CodingKey {
        case format, cases
    }

    /// Has the request's conversation with the settings of a case.
    mutating func add(
        _ tested: ParityRequest.Case, of request: ParityRequest, with model: ParityModel,
        in folder: URL
    ) async {
        var answer = Case(name: tested.name)
        do {
            if tested.returns {
                let straight = try await session(tested, request, model)
                for turn in request.turns { _ = try await straight.respond(to: turn) }
                answer.straight = await straight.trace.steps
            }
            model.recorded.clear()
            var session = try await session(tested, request, model)
            if tested.returns { try await session.prewarm() }
            for (number, turn) in request.turns.enumerated() {
                _ = try await session.respond(to: turn)
                guard tested.returns, number == request.turns.count - 2 else { continue }
                for try await _ in session.regenerate() {}
                let saved = folder.appending(path: "saved", directoryHint: .isDirectory)
                try await session.save(to: saved)
                session = try await H2OSession.restore(
                    from: saved, model: session.model, tools: request.sessionTools,
                    options: request.options)
            }
            (answer.steps, answer.pinned) = await (session.trace.steps, session.pinned)
        } catch {
            answer.error = error.localizedDescription
        }
        for (count, record) in model.recorded.records {
            arrays["\(tested.name).\(count)"] = record.logits
            for (layer, kept) in record.kept.enumerated() {
                arrays["\(tested.name).kept.\(layer).\(count)"] = kept
            }
            answer.evicting = record.kept.map { $0 != nil }
        }
        cases.append(answer)
    }

    private func session(
        _ tested: ParityRequest.Case, _ request: ParityRequest, _ model: ParityModel
    ) async throws -> H2OSession {
        model.with(tested, archiveInFiles: tested.returns && tested.config.recall != nil)
            .makeSession(
                instructions: request.instructions, tools: request.sessionTools,
                options: request.options)
    }

    func write(to folder: URL) throws {
        try save(arrays: arrays, url: folder.appending(path: "answer.safetensors"))
        // Writes this file last, so that the arrays exist as soon as the file does.
        try JSONEncoder().encode(self).write(
            to: folder.appending(path: "answer.json"), options: .atomic)
    }
}

extension H2OSession {
    fileprivate var pinned: Range<Int> {
        get async { await conversation.state?.pinned ?? 0 ..< 0 }
    }
}
