import Foundation
import MLX
import MLXLMCommon

/// A conversation with the bundled model, in bounded memory.
///
///     let session = try await BundledModel.makeSession(system: "Be brief.")
///     for try await part in await session.reply(to: "What is a heavy hitter?") {
///         print(part.text, terminator: "")
///     }
///
/// The caches and their scores live as long as the session, so a later turn reads only the new
/// tokens. The tokens of the system prompt are pinned. While the app is in the background,
/// nothing is computed; a reply continues afterwards.
public actor H2OSession {
    let context: ModelContext
    let options: H2OSessionOptions
    let platform: H2OPlatform
    let format: PromptFormat
    let plan: MemoryPlan?

    /// Empty before the first turn.
    var caches = [any KVCache]()
    /// Where the caches' archives are; nil for memory.
    var archive: ArchiveFolder?
    /// Tokens of the conversation that are not in the caches, after a canceled prefill.
    var unread = [Int]()
    /// Whether the last reply ended with a stop token.
    var ended = true

    private var running: Task<Void, Never>?
    private var replies = 0

    /// - Parameters:
    ///   - context: a model of mlx-swift-lm with its tokenizer
    ///   - options: see ``H2OSessionOptions``
    ///   - plan: the bytes that the model was planned to take
    ///   - platform: the system services to use
    public init(
        context: sending ModelContext, options: H2OSessionOptions, plan: MemoryPlan? = nil,
        platform: H2OPlatform = H2OPlatform()
    ) {
        let configuration = context.configuration
        let tokenizer = context.tokenizer
        let extra = configuration.extraEOSTokens.compactMap(tokenizer.convertTokenToId)
        let stops = configuration.eosTokenIds.union(extra)
            .union([tokenizer.eosTokenId].compactMap { $0 })
        format = PromptFormat(tokenizer: tokenizer, stops: stops, system: options.system)
        self.context = context
        self.options = options
        self.plan = plan
        self.platform = platform
        if options.archiveInFiles { try? platform.archives.deleteStale() }
    }

    /// Streams the model's reply. Generation does not wait for the reader. It ends with the
    /// turn, when the stream is dropped, or when ``cancel()`` is called.
    ///
    /// - Parameter prompt: the user's message
    /// - Returns: parts of the reply; the last has ``H2OReplyStatistics/stop``. The stream
    ///   throws ``H2OSessionError``, an `MLXError` or the chat template's own error. After an
    ///   error in the computation, the conversation starts again from the beginning.
    public func reply(to prompt: String) -> AsyncThrowingStream<H2OReplyPart, any Error> {
        let (stream, parts) = AsyncThrowingStream<H2OReplyPart, any Error>.makeStream()
        let previous = running
        guard previous?.isCancelled ?? true else {
            parts.finish(throwing: H2OSessionError.busy)
            return stream
        }
        replies += 1
        let number = replies
        let task = Task {
            await previous?.value
            do {
                try await generate(prompt, into: parts)
                finished(number)
                parts.finish()
            } catch {
                finished(number)
                parts.finish(throwing: error)
            }
        }
        running = task
        parts.onTermination = { _ in task.cancel() }
        return stream
    }

    /// Stops the reply that is being generated, and returns when it has stopped. The part that
    /// was generated stays in the conversation.
    public func cancel() async {
        running?.cancel()
        await running?.value
    }

    /// Starts a new conversation and forgets the previous one.
    public func reset() async {
        await cancel()
        forget()
    }

    /// Tokens in the conversation so far; most of them may have been evicted.
    public var tokensSeen: Int { caches.map(\.offset).max() ?? 0 }

    /// Which positions the caches keep now.
    public var keptPositions: H2OKeptPositions { H2OKeptPositions(caches) }

    /// Memory in use and memory left.
    public var memory: H2OMemoryReading {
        H2OMemoryReading(
            active: Memory.activeMemory, free: platform.memory.free, planned: plan?.total)
    }

    /// What recall did in this conversation; nil without it.
    var recalled: H2ORecallStatistics? {
        H2ORecallStatistics(caches.compactMap { $0 as? any H2OScoreTracking })
    }

    private func finished(_ number: Int) {
        if number == replies { running = nil }
    }

    func forget() {
        caches = []
        archive = nil
        unread = []
        ended = true
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
