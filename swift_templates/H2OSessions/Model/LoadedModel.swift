import Foundation
import H2OKit
import MLX
import MLXLMCommon

/// A model in memory and the objects that belong to it. Only jobs on its model's executor use it.
package final class LoadedModel: @unchecked Sendable {
    package let context: ModelContext
    /// The adapter with which the model was loaded; nil if there was none.
    let ownAdapter: LoadedAdapter?
    /// The adapter that is applied now.
    var adapter: LoadedAdapter?
    /// nil for a model that was not bundled.
    package let manifest: ModelManifest?
    /// The caches of the layers in each conversation.
    package let caches: H2OCaches
    /// Whether the archive of recall is in files; otherwise it is in memory.
    package let archiveInFiles: Bool
    /// The bytes that a conversation's snapshots may take.
    package let snapshots: H2OSnapshotLimits
    /// The most tokens of a prompt to read at once. It belongs to the package, because rows are
    /// evicted after each chunk.
    package let chunk: Int
    package let facts: ModelFacts
    /// What the chat template does.
    package let chat: ChatFacts
    /// Created for the first reply with a schema.
    package var grammars: SchemaGrammars?
    package let plan: MemoryPlan?
    /// MLX's limits while the model is in memory.
    private let limits: MemoryLimits?
    package let platform: H2OPlatform
    /// The caches of the package's system prompt, or why they cannot be used. nil if there are
    /// none.
    let prepared: Result<PreparedPrompt, PreparedPromptProblem>?
    /// The replies of a model without weights; nil for a model that computes.
    let script: Script?

    init(
        context: sending ModelContext, adapter: LoadedAdapter? = nil,
        manifest: ModelManifest? = nil, caches: H2OCaches,
        archiveInFiles: Bool = false, snapshots: H2OSnapshotLimits = H2OSnapshotLimits(),
        promptChunk: Int = 512, facts: ModelFacts = ModelFacts(), chat: ChatFacts? = nil,
        plan: MemoryPlan? = nil, limits: MemoryLimits? = nil,
        platform: H2OPlatform = H2OPlatform(),
        prepared: sending Result<PreparedPrompt, PreparedPromptProblem>? = nil,
        script: Script? = nil
    ) {
        self.context = context
        (ownAdapter, self.adapter) = (adapter, adapter)
        self.manifest = manifest
        self.snapshots = snapshots
        self.caches = caches
        self.archiveInFiles = archiveInFiles
        chunk = max(1, promptChunk)
        self.facts = facts
        self.chat = chat ?? manifest?.chat ?? ChatFacts(rendering: context)
        self.plan = plan
        self.limits = limits
        self.platform = platform
        self.prepared = prepared
        self.script = script
    }

    /// Whether conversations have archives, in files.
    var hasArchiveFiles: Bool { archiveInFiles && caches.configuration.recall != nil }

    /// Tokens that end the model's turn.
    package var stops: Set<Int> { chat.stops }

    /// The format that converts transcripts with these tools to tokens.
    func format(tools: [H2OToolDefinition], options: H2OSession.Options) -> PromptFormat {
        var thinking = [String: JSONValue]()
        if let variable = chat.thinking?.variable {
            let thinks = options.schema == nil ? options.thinking : false
            thinking[variable] = thinks.map(JSONValue.bool)
        }
        return PromptFormat(
            tokenizer: context.tokenizer, hasTemplate: chat.template, stops: stops,
            marks: chat.thinking.map { ThoughtMarks(begin: $0.begin, end: $0.end) }, tools: tools,
            variables: options.templateContext, thinking: thinking)
    }

    /// All values on which the caches of the model's conversations depend.
    package var identity: ConversationIdentity {
        let kind = String(describing: type(of: context.model))
        let digest = adapter?.digest ?? ""
        let addition = digest.isEmpty ? "" : " with the adapter \(digest.prefix(8))"
        return ConversationIdentity(
            model: (manifest?.model ?? kind) + addition,
            modelDigest: (manifest?.digest ?? kind) + digest, caches: caches,
            templateDigest: templateDigest, vocabulary: facts.vocabulary)
    }

    /// The digest of the tokens to which the chat template renders a made-up exchange.
    private lazy var templateDigest: String = {
        let format = format(tools: [], options: H2OSession.Options())
        let probe = [H2OMessage.system("a"), .user("b"), .assistant("c"), .user("d")]
        let tokens = (try? format.opening(probe))?.tokens ?? []
        return TranscriptChain(opening: tokens).head.digest
    }()

    func makeSnapshots() -> SnapshotStore {
        SnapshotStore(
            snapshots, identity: { self.identity }, archives: platform.archives,
            root: platform.snapshots, room: { self.snapshotRoom(taken: $0) })
    }

    /// The bytes of memory that a conversation's snapshots may take: the bytes that they take now
    /// and the free memory, minus the part of the plan that is not in use yet, and minus a reserve.
    /// nil if the system does not report the free memory.
    ///
    /// - Parameter taken: the bytes that the snapshots take now
    package func snapshotRoom(taken: Int) -> Int? {
        guard let free = platform.memory.free else { return nil }
        let used = Memory.activeMemory - taken
        let planned = max(0, (plan?.total ?? 0) - used)
        return taken + free - planned - Self.reserve
    }

    /// Bytes that are left for the app.
    package static let reserve = 256 << 20
}

extension LoadedModel {
    /// Returns the processor that makes a reply follow the schema of the options; nil without a
    /// schema.
    ///
    /// - Throws: ``H2OSessionError``
    func schemaProcessor(for options: H2OSession.Options) throws -> SchemaProcessor? {
        guard let schema = options.schema else { return nil }
        let grammars =
            try grammars
            ?? SchemaGrammars(
                tokenizer: context.tokenizer, endOfTurn: endOfTurn(), stops: stops)
        self.grammars = grammars
        return try grammars.processor(for: schema, atMost: options.maxTokens)
    }

    /// The token that ends a turn in the chat template; without a template, a token that ends a
    /// reply.
    private func endOfTurn() throws -> Int {
        let format = format(tools: [], options: H2OSession.Options())
        let exchange: [H2OMessage] = [.user("a"), .assistant("b"), .user("c")]
        let afterAnswer = try? format.following(2, of: exchange, stop: nil).tokens.first
        let candidates = [afterAnswer, context.tokenizer.eosTokenId, stops.min()].compactMap { $0 }
        guard let end = candidates.first(where: stops.contains) else {
            let reason = "the model has no token that ends a reply"
            throw H2OSessionError.invalidSchema(.refused(reason: reason))
        }
        return end
    }
}

extension LoadedModel {
    /// Makes the empty caches of a conversation, which never evict the positions `pinned`.
    ///
    /// - Parameter archive: the folder of the archive; nil for memory
    /// - Throws: ``H2OSessionError/systemPromptTooLong(tokens:atMost:)``, `H2OCacheError`
    func makeCaches(pinned: Range<Int>, archive: URL?) throws -> [any KVCache] {
        do {
            var caches = caches
            if !pinned.isEmpty {
                let ranges = caches.configuration.pinned + [pinned]
                caches.configuration = try caches.configuration.with(pinned: ranges)
            }
            if let archive {
                let path = archive.path(percentEncoded: false)
                caches.configuration = try caches.configuration.archiving(in: path)
            }
            return try caches.makeCaches(for: context.model)
        } catch H2OCacheError.invalidConfiguration(.nothingToEvict(let maxSize, let held, _), _) {
            throw H2OSessionError.systemPromptTooLong(
                tokens: pinned.count, atMost: pinned.count - (held - maxSize + 1))
        }
    }
}

/// Settings in a model's files.
package struct ModelFacts: Sendable {
    /// The sampling settings in `generation_config.json`.
    package var sampling = H2OSampling()
    /// The largest number of tokens of a prompt, from `config.json`; nil if it is not there.
    package var positions: Int?
    /// The number of tokens in the vocabulary, from `config.json`; nil if it is not there.
    package var vocabulary: Int?
}

extension ModelFacts {
    /// - Parameter folder: the model's folder; missing files leave the defaults
    package init(in folder: URL) {
        if let file: GenerationFile = Self.read("generation_config.json", in: folder) {
            sampling = file.sampling
        }
        let file: ConfigurationFile? = Self.read("config.json", in: folder)
        positions = file?.maxPositionEmbeddings ?? file?.textConfig?.maxPositionEmbeddings
        vocabulary = file?.vocabSize ?? file?.textConfig?.vocabSize
    }

    private static func read<File: Decodable>(_ name: String, in folder: URL) -> File? {
        let decoder = JSONDecoder()
        decoder.keyDecodingStrategy = .convertFromSnakeCase
        let data = try? RegularFile.data(folder.appending(path: name))
        return data.flatMap { try? decoder.decode(File.self, from: $0) }
    }
}

private struct GenerationFile: Decodable {
    let doSample: Bool?
    let temperature: Float?
    let topP: Float?
    let topK: Int?
    let minP: Float?
    let repetitionPenalty: Float?

    var sampling: H2OSampling {
        H2OSampling(
            temperature: doSample == false ? 0 : temperature, topP: topP, topK: topK, minP: minP,
            repetitionPenalty: repetitionPenalty)
    }
}

private struct ConfigurationFile: Decodable {
    struct Text: Decodable {
        let maxPositionEmbeddings: Int?
        let vocabSize: Int?
    }

    let maxPositionEmbeddings: Int?
    let vocabSize: Int?
    let textConfig: Text?
}
