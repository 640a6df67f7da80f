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
    /// What holds memory that it can do without.
    nonisolated let holders = MemoryHolders()
    private nonisolated let pressure: MemoryPressure.Observation

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
        pressure = platform.pressure.observe { [holders] in
            Task { await Self.releaseMemory(holders) }
        }
        for root in [platform.archives, platform.snapshots] {
            ConversationFolder.deleteStale(in: root)
        }
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

    /// Lets memory go that is not needed now: buffers that MLX keeps, conversations of
    /// FoundationModels that no request uses, and snapshots, which go to files as far as
    /// ``H2OSnapshotLimits/files`` allows. Nothing is lost, but some may be read again. It happens
    /// by itself when the system warns, and when the app goes to the background.
    public func releaseMemory() async {
        await Self.releaseMemory(holders)
    }

    private static func releaseMemory(_ holders: MemoryHolders) async {
        for holder in holders.all { await holder.releaseMemory() }
        Memory.clearCache()
    }

    /// Whether the model can think before it answers, so that ``H2OSession/Options/thinking`` says
    /// something to it.
    public var canThink: Bool {
        ReplyDecoder(
            loaded.context.configuration, tokenizer: loaded.context.tokenizer, tools: [], prompt: ""
        ).canThink
    }

    /// Memory in use and memory left.
    public nonisolated var memory: H2OMemoryReading { H2OMemoryReading(loaded) }
}

/// Has memory that it can do without.
protocol MemoryHolder: AnyObject, Sendable {
    func releaseMemory() async
}

/// All of a model's that there are.
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
    /// Loads a model from its folder. First checks that the folder is as it was bundled, that
    /// MLX can start, and that the model fits into the free memory. The CPU loads it, so that
    /// the app may be in the background meanwhile.
    ///
    /// - Parameters:
    ///   - folder: weights, tokenizer, configuration and `manifest.json`
    ///   - plan: the bytes that the model takes; MLX's limits are the sum of the plans of all
    ///     models in memory, and what their snapshots may take
    ///   - caches: what the model's layers get for each conversation
    ///   - archiveInFiles: whether what recall brings back waits in files, which are deleted
    ///     with the conversation, and not in memory
    ///   - snapshots: the bytes that those of one conversation may take
    ///   - checksEveryByte: whether the files' digests are compared, and not their sizes alone;
    ///     it takes seconds per gigabyte
    /// - Throws: `H2OLoadingError`, or an error of mlx-swift-lm
    public static func load(
        from folder: URL, plan: MemoryPlan, caches: H2OCaches, archiveInFiles: Bool = false,
        snapshots: H2OSnapshotLimits = H2OSnapshotLimits(), checksEveryByte: Bool = false
    ) async throws -> H2OModel {
        try await load(
            from: folder, plan: plan, caches: caches, archiveInFiles: archiveInFiles,
            snapshots: snapshots, verification: checksEveryByte ? .full : .sizes,
            platform: H2OPlatform(), loader: LLMLoader())
    }

    /// The same with other system services, and another way to make the model.
    package static func load(
        from folder: URL, plan: MemoryPlan, caches: H2OCaches, archiveInFiles: Bool = false,
        snapshots: H2OSnapshotLimits = H2OSnapshotLimits(),
        verification: ModelVerification = .sizes, platform: H2OPlatform,
        loader: any H2OModelLoader
    ) async throws -> H2OModel {
        let manifest = try verification.check(folder)
        try platform.metal.check()
        try platform.memory.check(plan, of: manifest.model)
        let limits = MemoryLimits(plan, snapshots: snapshots.memory)
        // Upstream loads in one call, which no guard could interrupt: work on the GPU would end
        // the app in the background.
        return try await Device.withDefaultDevice(.cpu) {
            let context = try await loader.load(from: folder, tokenizer: BundledTokenizerLoader())
            try BundledAdapter.apply(in: folder, to: context.model)
            return H2OModel(
                context: context, manifest: manifest, caches: caches,
                archiveInFiles: archiveInFiles, snapshots: snapshots,
                facts: ModelFacts(in: folder), plan: plan, limits: limits, platform: platform,
                prepared: prepared(in: folder, manifest))
        }
    }

    /// The caches of the system prompt in a model's folder, which may have none.
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

/// The system services that a model uses; tests replace them.
package struct H2OPlatform: Sendable {
    package var memory: MemoryGuard
    package var background: BackgroundGuard
    package var metal: MetalCheck
    package var pressure: MemoryPressure
    /// Where archives in files are, a folder per conversation.
    package var archives: URL
    /// The same of snapshots in files.
    package var snapshots: URL {
        archives.deletingLastPathComponent()
            .appending(path: "h2o-snapshots", directoryHint: .isDirectory)
    }
    /// The time since a fixed moment.
    package var elapsed: @Sendable () -> Duration

    package init(
        memory: MemoryGuard = .system, background: BackgroundGuard = .system,
        metal: MetalCheck = .system, pressure: MemoryPressure = .system,
        archives: URL = H2OPlatform.ownArchives,
        elapsed: @escaping @Sendable () -> Duration = H2OPlatform.sinceStart
    ) {
        self.memory = memory
        self.background = background
        self.metal = metal
        self.pressure = pressure
        self.archives = archives
        self.elapsed = elapsed
    }

    /// In the app's own folder for files that it needs to work.
    package static let ownArchives: URL = {
        let files = FileManager.default
        let own = files.urls(for: .applicationSupportDirectory, in: .userDomainMask).first
        return (own ?? files.temporaryDirectory)
            .appending(path: "h2o-archives", directoryHint: .isDirectory)
    }()

    private static let start = ContinuousClock.now

    /// The time since this was first asked.
    package static let sinceStart: @Sendable () -> Duration = {
        start.duration(to: .now)
    }
}
