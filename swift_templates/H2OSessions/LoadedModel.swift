import H2OKit
import MLX
import MLXLMCommon

/// A model in memory with what belongs to it. Only jobs on its model's executor use it.
package final class LoadedModel: @unchecked Sendable {
    package let context: ModelContext
    /// nil for a model that was not bundled.
    package let manifest: ModelManifest?
    /// What the layers of each conversation get.
    package let caches: H2OCaches
    /// Whether what recall brings back waits in files and not in memory.
    package let archiveInFiles: Bool
    /// The bytes that a conversation's snapshots may take.
    package let snapshots: H2OSnapshotLimits
    /// Tokens of a prompt that are read at a time.
    package let promptChunk: Int
    package let facts: ModelFacts
    /// Made for the first reply that has a schema.
    package var grammars: SchemaGrammars?
    package let plan: MemoryPlan?
    /// MLX's limits, as long as the model is in memory.
    private let limits: MemoryLimits?
    package let platform: H2OPlatform
    /// The caches of the system prompt that the package was made with, or why they cannot be
    /// used. nil if there are none.
    let prepared: Result<PreparedPrompt, PreparedPromptProblem>?

    init(
        context: sending ModelContext, manifest: ModelManifest?, caches: H2OCaches,
        archiveInFiles: Bool, snapshots: H2OSnapshotLimits, promptChunk: Int, facts: ModelFacts,
        plan: MemoryPlan?, limits: MemoryLimits?, platform: H2OPlatform,
        prepared: Result<PreparedPrompt, PreparedPromptProblem>?
    ) {
        self.context = context
        self.manifest = manifest
        self.snapshots = snapshots
        self.caches = caches
        self.archiveInFiles = archiveInFiles
        self.promptChunk = max(1, promptChunk)
        self.facts = facts
        self.plan = plan
        self.limits = limits
        self.platform = platform
        self.prepared = prepared
    }

    /// Tokens that end the model's turn.
    package var stops: Set<Int> {
        let configuration = context.configuration
        let tokenizer = context.tokenizer
        let extra = configuration.extraEOSTokens.compactMap(tokenizer.convertTokenToId)
        return configuration.eosTokenIds.union(extra)
            .union([tokenizer.eosTokenId].compactMap { $0 })
    }

    /// How transcripts with these tools become tokens.
    func format(tools: [H2OToolDefinition], options: H2OSession.Options) -> PromptFormat {
        let thinking = (options.schema == nil ? options.thinking : false).map {
            [context.configuration.thinkingVariable: JSONValue.bool($0)]
        }
        return PromptFormat(
            tokenizer: context.tokenizer, stops: stops, tools: tools,
            variables: options.templateContext, thinking: thinking ?? [:])
    }

    /// What the caches of its conversations depend on.
    package private(set) lazy var identity: ConversationIdentity = {
        let format = format(tools: [], options: H2OSession.Options())
        let probe = [H2OMessage.system("a"), .user("b"), .assistant("c"), .user("d")]
        let tokens = (try? format.opening(probe))?.tokens ?? []
        let kind = String(describing: type(of: context.model))
        return ConversationIdentity(
            model: manifest?.model ?? kind, modelDigest: manifest?.digest ?? kind, caches: caches,
            templateDigest: TranscriptChain(opening: tokens).head.digest)
    }()

    func makeSnapshots() -> SnapshotStore {
        SnapshotStore(
            snapshots, identity: { self.identity }, archives: platform.archives,
            root: platform.snapshots, room: { self.snapshotRoom(taken: $0) })
    }

    /// The bytes in memory that a conversation's snapshots may take: what is free beyond what
    /// the plan has for the model and its caches and a reserve. nil if the system does not say.
    ///
    /// - Parameter taken: those that they take now
    package func snapshotRoom(taken: Int) -> Int? {
        guard let free = platform.memory.free else { return nil }
        let used = Memory.activeMemory - taken
        let planned = max(0, (plan?.total ?? 0) - used)
        return taken + free - planned - Self.reserve
    }

    /// Bytes that are left to the app.
    package static let reserve = 256 << 20
}
