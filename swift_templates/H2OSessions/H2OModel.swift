import Foundation
import H2OKit
import MLX
import MLXLMCommon

/// A model in memory, for any number of conversations.
///
///     let model = try await BundledModel.load()
///     let session = model.makeSession(instructions: "Be brief.")
///     print(try await session.respond(to: "What is a heavy hitter?").text)
///
/// Its replies follow each other: that of one session waits until that of another has ended.
/// While the app is in the background, nothing is computed; a reply continues afterwards.
public actor H2OModel {
    private nonisolated let executor = ThreadExecutor()
    package nonisolated let loaded: LoadedModel
    nonisolated let turns = TurnQueue()

    /// A queue of its own, which the model's sessions share.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        executor.asUnownedSerialExecutor()
    }

    /// - Parameters:
    ///   - context: a model of mlx-swift-lm with its tokenizer
    ///   - caches: what its layers get for each conversation
    ///   - archiveInFiles: whether what recall brings back waits in files, which are deleted
    ///     with the conversation, and not in memory. Without recall nothing is kept.
    ///   - snapshots: the bytes that those of one conversation may take
    ///   - promptChunk: tokens of a prompt that are read at a time
    public init(
        context: sending ModelContext, caches: H2OCaches, archiveInFiles: Bool = false,
        snapshots: H2OSnapshotLimits = H2OSnapshotLimits(),
        promptChunk: Int = GenerateParameters().promptChunk
    ) {
        self.init(
            context: context, caches: caches, archiveInFiles: archiveInFiles,
            snapshots: snapshots, promptChunk: promptChunk, plan: nil, platform: H2OPlatform())
    }

    package init(
        context: sending ModelContext, manifest: ModelManifest? = nil, caches: H2OCaches,
        archiveInFiles: Bool, snapshots: H2OSnapshotLimits = H2OSnapshotLimits(),
        promptChunk: Int = GenerateParameters().promptChunk, facts: ModelFacts = ModelFacts(),
        plan: MemoryPlan?, limits: MemoryLimits? = nil, platform: H2OPlatform,
        prepared: sending Result<PreparedPrompt, PreparedPromptProblem>? = nil
    ) {
        loaded = LoadedModel(
            context: context, manifest: manifest, caches: caches, archiveInFiles: archiveInFiles,
            snapshots: snapshots, promptChunk: promptChunk, facts: facts, plan: plan,
            limits: limits, platform: platform, prepared: prepared)
        if archiveInFiles { try? platform.archives.deleteStale() }
        SnapshotFolder.deleteStale(in: platform.snapshots)
    }

    /// A new conversation.
    ///
    /// - Parameters:
    ///   - instructions: the system prompt; its tokens are never evicted
    ///   - tools: what the model may call
    ///   - options: for replies that are asked for without options of their own
    public nonisolated func makeSession(
        instructions: String? = nil, tools: [H2OTool] = [],
        options: H2OSession.Options = H2OSession.Options()
    ) -> H2OSession {
        H2OSession(
            Conversation(model: self), messages: instructions.map { [.system($0)] } ?? [],
            tools: tools, options: options)
    }

    /// Memory in use and memory left.
    public nonisolated var memory: H2OMemoryReading {
        H2OMemoryReading(
            active: Memory.activeMemory, free: loaded.platform.memory.free,
            planned: loaded.plan?.total)
    }
}

/// Memory at a moment, in bytes.
public struct H2OMemoryReading: Hashable, Sendable {
    /// Bytes of MLX's arrays.
    public let active: Int
    /// Bytes that the process may still allocate; nil if the system does not say.
    public let free: Int?
    /// Bytes that the model was planned to take.
    public let planned: Int?
}
