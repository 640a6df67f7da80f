import Foundation
import H2OKit
import MLX
import MLXLMCommon

/// A model in memory, for any number of conversations.
///
///     let model = try await BundledModel.load()
///     let session = model.makeSession(instructions: "Be brief.")
///     print(try await session.respond(to: "What is a heavy hitter?").content)
///
/// The model generates one reply at a time: a session waits until the reply of another session has
/// ended. In the background it computes nothing; a reply continues when the app is in the
/// foreground again.
public actor H2OModel {
    private nonisolated let executor = ThreadExecutor()
    package nonisolated let loaded: LoadedModel
    nonisolated let turns = TurnQueue()
    /// The objects that can release memory.
    nonisolated let holders = MemoryHolders()
    private nonisolated let pressure: MemoryPressure.Observation

    /// The executor that the model and its sessions share.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        executor.asUnownedSerialExecutor()
    }

    /// - Parameters:
    ///   - context: a model of mlx-swift-lm with its tokenizer
    ///   - caches: the caches of its layers in each conversation
    ///   - archiveInFiles: true if the archive of recall is in files, which are deleted with the
    ///     conversation; false if it is in memory. Without recall there is no archive
    ///   - snapshots: the bytes that the snapshots of one conversation may take
    ///   - promptChunk: the most tokens of a prompt that are read at once. Another number changes
    ///     which rows are evicted, and so the replies
    public init(
        context: sending ModelContext, caches: H2OCaches, archiveInFiles: Bool = false,
        snapshots: H2OSnapshotLimits = H2OSnapshotLimits(),
        promptChunk: Int = 512
    ) {
        self.init(
            LoadedModel(
                context: context, caches: caches, archiveInFiles: archiveInFiles,
                snapshots: snapshots, promptChunk: promptChunk))
    }

    init(_ loaded: LoadedModel) {
        self.loaded = loaded
        pressure = loaded.platform.pressure.observe { [holders] in
            Task { await Self.releaseMemory(holders) }
        }
        for root in [loaded.platform.archives, loaded.platform.snapshots] {
            ConversationFolder.deleteStale(in: root)
        }
    }

    /// Starts a new conversation.
    ///
    /// - Parameters:
    ///   - instructions: the system prompt; its tokens are never evicted
    ///   - tools: the tools that the model may call
    ///   - options: the options of replies that have none of their own
    public nonisolated func makeSession(
        instructions: String? = nil, tools: [H2OTool] = [],
        options: H2OSession.Options = H2OSession.Options()
    ) -> H2OSession {
        H2OSession(
            Conversation(model: self), transcript: instructions.map { [.system($0)] } ?? [],
            tools: tools, options: options)
    }

    /// Releases memory that is not needed now: buffers that MLX keeps, conversations of
    /// FoundationModels that no request uses, and snapshots, which move to files up to the limit
    /// ``H2OSnapshotLimits/files``. No message is lost, but some may be read again. The model calls
    /// this itself after a memory warning and when the app enters the background.
    public func releaseMemory() async {
        if loaded.script == nil { await Self.releaseMemory(holders) }
    }

    private static func releaseMemory(_ holders: MemoryHolders) async {
        for holder in holders.all { await holder.releaseMemory() }
        Memory.clearCache()
    }

    /// Whether the model can think before it answers, so that ``H2OSession/Options/thinking`` has
    /// an effect.
    ///
    /// For a bundled model, `h2o-pack` found this and ``canCallTools`` by rendering its chat template.
    public nonisolated var canThink: Bool { loaded.chat.thinking != nil }

    /// Whether the model can call tools: whether its chat template writes them into the prompt. A
    /// session with tools of another model throws ``H2OSessionError/noTools(model:)``.
    public nonisolated var canCallTools: Bool { loaded.chat.template && loaded.chat.tools }
}

/// An object that can release memory.
protocol MemoryHolder: AnyObject, Sendable {
    func releaseMemory() async
}

/// All memory holders of a model.
final class MemoryHolders: @unchecked Sendable {
    private struct Weak {
        weak var holder: (any MemoryHolder)?
    }

    private let lock = NSLock()
    private var members = [Weak]()

    var all: [any MemoryHolder] { lock.withLock { members.compactMap(\.holder) } }

    func add(_ holder: any MemoryHolder) {
        lock.withLock {
            members.removeAll { $0.holder == nil }
            members.append(Weak(holder: holder))
        }
    }
}

extension H2OModel {
    /// Loads a model from its folder. First checks that the folder matches its manifest, that MLX
    /// can start, and that the model fits into the free memory. The CPU loads the model, so the app
    /// may enter the background meanwhile.
    ///
    /// - Parameters:
    ///   - folder: contains weights, tokenizer, configuration and `manifest.json`
    ///   - plan: the bytes that the model needs. MLX's limits are the sum of the plans and snapshot
    ///     limits of all models in memory
    ///   - caches: the caches of the model's layers in each conversation
    ///   - archiveInFiles: true if the archive of recall is in files, which are deleted with the
    ///     conversation; false if it is in memory
    ///   - snapshots: the bytes that the snapshots of one conversation may take
    ///   - checksEveryByte: whether to compare the files' digests too, which takes seconds per
    ///     gigabyte; if false, compares only their sizes
    /// - Throws: `H2OLoadingError`, or an error of mlx-swift-lm
    public static func load(
        from folder: URL, plan: MemoryPlan, caches: H2OCaches, archiveInFiles: Bool = false,
        snapshots: H2OSnapshotLimits = H2OSnapshotLimits(), checksEveryByte: Bool = false
    ) async throws -> H2OModel {
        try await load(
            from: folder, plan: plan, caches: caches, archiveInFiles: archiveInFiles,
            snapshots: snapshots, checksEveryByte: checksEveryByte,
            platform: H2OPlatform(), loader: LLMLoader())
    }

    /// Loads a model with other system services and another loader, for tests.
    package static func load(
        from folder: URL, plan: MemoryPlan, caches: H2OCaches, archiveInFiles: Bool = false,
        snapshots: H2OSnapshotLimits = H2OSnapshotLimits(),
        checksEveryByte: Bool = false, platform: H2OPlatform,
        loader: any H2OModelLoader
    ) async throws -> H2OModel {
        let manifest = try ModelManifest.check(folder, everyByte: checksEveryByte)
        try platform.metal.check()
        try platform.memory.check(plan, of: manifest.model)
        let limits = MemoryLimits(plan, snapshots: snapshots.memory)
        // mlx-swift-lm loads a model in one call that cannot be interrupted. If that call used the
        // GPU in the background, iOS would end the app.
        return try await Device.withDefaultDevice(.cpu) {
            let context = try await loader.load(from: folder, tokenizer: BundledTokenizerLoader())
            let adapter = try LoadedAdapter.bundled(in: folder)
            try withError { try adapter?.adapter.load(into: context.model) }
            return H2OModel(
                LoadedModel(
                    context: context, adapter: adapter, manifest: manifest, caches: caches,
                    archiveInFiles: archiveInFiles, snapshots: snapshots,
                    promptChunk: manifest.promptChunk, facts: ModelFacts(in: folder), plan: plan,
                    limits: limits, platform: platform, prepared: prepared(in: folder, manifest)))
        }
    }

    /// The caches of the system prompt in a model's folder; nil if it has none.
    private static func prepared(
        in folder: URL, _ manifest: ModelManifest
    ) -> Result<PreparedPrompt, PreparedPromptProblem>? {
        do throws(PreparedPromptProblem) {
            return try PreparedPrompt.read(in: folder, digest: manifest.digest).map { .success($0) }
        } catch {
            return .failure(error)
        }
    }
}

extension H2OModel {
    /// Applies another LoRA or DoRA adapter, without loading the model again. First waits for the
    /// replies that were requested before.
    ///
    /// Conversations go on: the next reply of each reads its messages again, because the adapter
    /// changes keys and values. A conversation that was saved with one adapter cannot be restored
    /// with another, and the caches of a prepared system prompt are used only with the package's
    /// own adapter.
    ///
    /// - Parameter folder: has `adapters.safetensors` and `adapter_config.json`, which
    ///   `mlx_lm.lora` writes; nil for the package's own adapter, or for none if it has none
    /// - Throws: `ModelAdapterError` for a model or an adapter that mlx-swift-lm does not support,
    ///   an `MLXError` or another error for an adapter of another model, an error of reading, or
    ///   `CancellationError`. The adapter is then the same as before
    public func setAdapter(_ folder: URL?) async throws {
        guard loaded.script == nil else { return }
        let adapter = try await loaded.platform.background.withGPU {
            try folder.map { try LoadedAdapter(in: $0) } ?? loaded.ownAdapter
        }
        try await use(adapter)
    }

    /// Applies an adapter in place of the one that is applied; nil for none.
    func use(_ new: LoadedAdapter?) async throws {
        try await turns.begin()
        defer { turns.end() }
        let (old, model) = (loaded.adapter, loaded.context.model)
        try await loaded.platform.background.withGPU {
            old?.adapter.unload(from: model)
            do {
                try withError { try new?.adapter.load(into: model) }
            } catch {
                new?.adapter.unload(from: model)
                try old?.adapter.load(into: model)
                throw error
            }
        }
        loaded.adapter = new
        for case let conversation as Conversation in holders.all {
            await conversation.releaseAllCaches()
        }
    }
}

/// The system services that a model uses; tests replace them.
package struct H2OPlatform: Sendable {
    package var memory = MemoryGuard.system
    package var background = BackgroundGuard.system
    package var metal = MetalCheck.system
    package var pressure = MemoryPressure.system
    package var conditions = DeviceConditions.system
    /// The folder that has a subfolder for each conversation's archives.
    package var archives = H2OPlatform.ownArchives
    /// The folder that has a subfolder for each conversation's snapshots.
    package var snapshots: URL {
        archives.deletingLastPathComponent()
            .appending(path: "h2o-snapshots", directoryHint: .isDirectory)
    }
    /// Returns the most bytes that the process has taken so far; nil if unknown.
    package var footprint: @Sendable () -> Int? = { Footprint.largest }
    /// Returns the time since a fixed moment.
    package var elapsed: @Sendable () -> Duration = H2OPlatform.sinceStart

    /// The folder for archives in the app's folder for support files.
    package static let ownArchives: URL = {
        let files = FileManager.default
        let own = files.urls(for: .applicationSupportDirectory, in: .userDomainMask).first
        return (own ?? files.temporaryDirectory)
            .appending(path: "h2o-archives", directoryHint: .isDirectory)
    }()

    private static let start = ContinuousClock.now

    /// The time since the first call.
    package static let sinceStart: @Sendable () -> Duration = {
        start.duration(to: .now)
    }
}
