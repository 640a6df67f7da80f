import Foundation
import H2OKit
import H2OSessions
import Observation

/// The model of a chat screen: the state that the screen shows, as observable properties, and the
/// actions of its buttons, as methods. The language model runs on the device, and no text leaves
/// it.
///
///     @State private var chat = H2OChat { try await BundledModel.load() }
///
/// While a reply arrives, ``messages`` changes at most ten times per second. With a folder, the
/// chat has several conversations, one of which is open. It writes a message to disk when the user
/// sends it, and a reply while it arrives. If the app is ended during a reply, both are there at
/// the next launch, and ``continueReply()`` continues the reply.
@MainActor @Observable
public final class H2OChat {
    public enum State: Hashable, Sendable {
        case loading
        case ready
        case replying
        /// The model is not loaded; ``H2OChat/load()`` tries again.
        case failed
    }

    public private(set) var state = State.loading
    /// The messages of the conversation, without instructions and outputs of tools.
    public private(set) var messages = [Message]()
    /// The error message for the user: why the model is not loaded, the last message has no reply,
    /// or the conversation was not saved.
    public private(set) var problem: String?
    /// The same error, described for the developer.
    public private(set) var problemDetails: String?
    /// The usage of the last reply.
    public private(set) var usage = H2OSession.Usage()
    /// The memory in use, and how many tokens are remembered; nil until the model is loaded.
    public private(set) var memory: H2OMemoryReading?
    /// The downloaded share of the model, from 0 to 1; nil if the app does not know it.
    public var fetchedShare: Double?
    /// Questions that the user may ask first.
    public private(set) var suggestions: [String]
    /// All saved conversations, the newest first.
    public private(set) var conversations = [Conversation]()
    /// The open conversation.
    public private(set) var conversation = newID()
    /// The message that the draft will replace, together with all messages after it.
    public private(set) var editing: Message.ID?
    /// The text that the user is writing.
    public var draft = ""
    /// Whether the model thinks before it answers, if it ``canThink``.
    public var thinks: Bool { didSet { keepSettings() } }
    /// The most tokens of a reply; nil for no limit.
    public var maxTokens: Int? { didSet { keepSettings() } }
    /// Whether the model can think. False until it is loaded.
    public private(set) var canThink = false

    /// The model; nil until it is loaded.
    public var model: H2OModel? { session?.model }

    /// Intervals of repeated work; tests shorten them.
    package struct Pace: Sendable {
        /// The time between two updates of the screen during a reply.
        package var shows = Duration.milliseconds(100)
        /// The time between two writes of an arriving reply to disk.
        package var keeps = Duration.seconds(1)
        /// The time from the end of a reply until the caches are written. Without it, large caches
        /// might be written although the next reply changes them at once.
        package var quiet = Duration.seconds(3)
    }

    package var pace = Pace()
    /// The messages up to the user's message that the model is answering; nil if it answers none,
    /// or an earlier one again.
    private var asked: [H2OMessage]?
    private let folder: ChatFolder?
    private let prompts: [String]
    private let instructions: String?
    private let tools: [H2OTool]
    private let options: H2OSession.Options
    private let loadModel: @Sendable () async throws -> H2OModel
    package private(set) var session: H2OSession?
    private var isLoading = false
    /// Whether the saved settings were read.
    private var hasSettings = false
    /// The number of conversations opened so far. It shows whether a reply still belongs to the open
    /// conversation.
    private var opened = 0
    /// Writes the caches some time after the last reply.
    private var saving: Task<Void, Never>?

    /// - Parameters:
    ///   - instructions: the instructions of new conversations
    ///   - tools: the tools that the model may call; tool calls and their outputs are not in
    ///     ``messages``
    ///   - prompts: suggestions for the first message
    ///   - folder: where conversations and settings are saved; nil to save nothing
    ///   - options: the options of replies, with the initial values of ``thinks`` and
    ///     ``maxTokens``
    ///   - loadModel: returns the model, after loading it if needed
    public init(
        instructions: String? = nil, tools: [H2OTool] = [], prompts: [String] = [],
        folder: URL? = nil, options: H2OSession.Options = H2OSession.Options(),
        loadModel: @escaping @Sendable () async throws -> H2OModel
    ) {
        self.instructions = instructions
        self.tools = tools
        self.folder = folder.map(ChatFolder.init)
        self.options = options
        self.loadModel = loadModel
        (self.prompts, suggestions) = (prompts, prompts)
        let settings = self.folder?.settings
        thinks = settings?.thinks ?? options.thinking ?? false
        maxTokens = settings.map(\.maxTokens) ?? options.maxTokens
        hasSettings = true
    }

    private func keepSettings() {
        guard hasSettings else { return }
        folder?.settings = ChatFolder.Settings(thinks: thinks, maxTokens: maxTokens)
    }

    private nonisolated static func newID() -> Conversation.ID { UUID().uuidString }

    /// Loads the model and the conversation. Does nothing if they are loaded or loading.
    public func load() async {
        guard session == nil, !isLoading else { return }
        (isLoading, state) = (true, .loading)
        show(nil)
        defer { isLoading = false }
        do {
            try folder?.checkReadable()
            let model = try await loadModel()
            canThink = model.canThink
            conversations = folder?.conversations ?? []
            await open(conversations.first?.id ?? conversation, on: model)
            fetchedShare = nil
        } catch {
            state = .failed
            show(error)
        }
    }

    /// Opens a conversation, or begins a new one.
    private func open(_ id: Conversation.ID, on model: H2OModel) async {
        let new = model.makeSession(instructions: instructions, tools: tools, options: options)
        let session = await folder?[id].restore(new) ?? new
        (self.session, conversation) = (session, id)
        (editing, asked, usage) = (nil, nil, H2OSession.Usage())
        show(nil)
        await show(session)
        suggestions = messages.isEmpty ? prompts : []
        state = .ready
    }

    /// Whether the draft can be sent: it has text, and no other work is running.
    public var canSend: Bool { state == .ready && !prompt.isEmpty }

    /// Whether the last reply is incomplete and can be continued, or the last message has no
    /// reply and can be answered.
    public var canContinue: Bool {
        guard state == .ready, let last = messages.last else { return false }
        return last.isUser || last.isCutOff || last.text.isEmpty
    }

    /// Sends the draft and shows the reply as it arrives. If there is no reply, restores the draft;
    /// ``problem`` gives the reason, unless the user stopped the reply before it began.
    public func send() async {
        guard let session, canSend else { return }
        let (text, index) = (prompt, editing)
        (state, draft, editing, suggestions) = (.replying, "", nil, [])
        let before = messages.filter { $0.id < index ?? .max }
        let question = Message(id: index ?? nextID, isUser: true, text: text)
        messages = before + [question]
        let earlier = await session.transcript
        let asked = earlier.prefix(index ?? earlier.count) + [.user(text)]
        self.asked = Array(asked)
        keep(asked)
        let parts = session.stream(replyOptions) { _ in (.user(text), index) }
        await receive(parts, of: session, into: Message(id: nextID, isUser: false, text: "")) {
            if draft.isEmpty { (draft, editing) = (text, index) }
        }
    }

    /// Replaces the last reply by a new one.
    public func regenerate() async {
        guard let session, state == .ready, let last = messages.lastIndex(where: \.isUser) else {
            return
        }
        state = .replying
        messages = Array(messages[...last])
        let parts = session.regenerate(options: replyOptions)
        await receive(parts, of: session, into: Message(id: nextID, isUser: false, text: ""))
    }

    /// Continues an incomplete reply. If the reply was cut off after its thoughts, the model writes
    /// the answer. If the reply is empty, the model answers the last message again.
    public func continueReply() async {
        guard let session, canContinue else { return }
        guard let last = messages.last, !last.isUser, await session.canContinue else {
            return await regenerate()
        }
        state = .replying
        messages.removeLast()
        let parts = session.continueResponse(options: replyOptions)
        await receive(parts, of: session, into: last)
    }

    /// Stops the reply and keeps its text so far. If there is none, the user's message is the draft
    /// again.
    public func stop() async { await session?.cancel() }

    /// Copies a message of the user into the draft. Sending the draft replaces that message and
    /// all messages after it.
    public func edit(_ id: Message.ID) {
        guard state == .ready, let message = messages.first(where: { $0.id == id && $0.isUser })
        else { return }
        (draft, editing) = (message.text, id)
    }

    /// Ends editing and leaves the conversation unchanged.
    public func cancelEditing() { (draft, editing) = ("", nil) }

    /// Begins a new conversation. The open conversation is saved, with the part of a reply that has
    /// arrived.
    public func beginConversation() async { await change(to: Self.newID()) }

    /// Opens a saved conversation.
    public func open(_ id: Conversation.ID) async {
        guard id != conversation else { return }
        await change(to: id)
    }

    /// Deletes a conversation, which may be the open one.
    public func delete(_ id: Conversation.ID) async {
        if id == conversation {
            guard let session, !isLoading else { return }
            opened += 1
            saving?.cancel()
            await session.reset()
            folder?[id].delete()
            await open(Self.newID(), on: session.model)
        } else {
            folder?[id].delete()
        }
        conversations = folder?.conversations ?? []
    }

    private func change(to id: Conversation.ID) async {
        guard let session, !isLoading else { return }
        isLoading = true
        defer { isLoading = false }
        opened += 1
        saving?.cancel()
        await session.cancel()
        let openFolder = folder?[conversation]
        let messages = await session.transcript
        if messages.contains(where: { $0.role == .user }) { try? await openFolder?.save(session) }
        // A message whose reply had not begun is there to be answered later.
        if let asked, !messages.starts(with: asked) { try? openFolder?.keep(asked) }
        await open(id, on: session.model)
        conversations = folder?.conversations ?? []
    }

    /// The conversation as text, for sharing.
    public var transcript: String {
        messages.map { ($0.isUser ? "> " : "") + $0.text }.joined(separator: "\n\n")
    }

    /// Writes the conversation and its caches now; call it when the app leaves the foreground.
    /// During a reply, does nothing: the arriving reply is written from time to time, and the caches
    /// are written after it.
    public func save() async {
        saving?.cancel()
        guard let session, state == .ready, !messages.isEmpty else { return }
        let opened = opened
        do {
            try await folder?[conversation].save(session)
        } catch is CancellationError {
        } catch {
            if opened == self.opened { show(error) }
        }
    }

    private var replyOptions: H2OSession.Options {
        var options = options
        if canThink { options.thinking = thinks }
        options.maxTokens = maxTokens
        return options
    }

    private var prompt: String { draft.trimmingCharacters(in: .whitespacesAndNewlines) }

    private var nextID: Message.ID { (messages.last?.id ?? 0) + 1 }

    /// Updates the screen's properties from the session.
    private func show(_ session: H2OSession) async {
        messages = await Message.shown(session.transcript)
        memory = await session.memory
    }

    private func show(_ error: (any Error)?) {
        problem = error.map(ChatProblem.text)
        problemDetails = error?.localizedDescription
    }

    /// Shows a reply while it arrives, and saves the conversation.
    ///
    /// - Parameters:
    ///   - message: the existing part of a reply that continues
    ///   - withoutReply: is called if the user's message has no reply
    private func receive(
        _ parts: AsyncThrowingStream<H2OSession.Part, any Error>, of session: H2OSession,
        into message: Message, withoutReply: () -> Void = {}
    ) async {
        let opened = opened
        saving?.cancel()
        show(nil)
        messages.append(message)
        do {
            try await append(parts, of: session, opened)
        } catch {
            if opened == self.opened { show(error) }
        }
        guard opened == self.opened else { return }
        await show(session)
        let transcript = await session.transcript
        guard opened == self.opened else { return }
        if let asked, !transcript.starts(with: asked) { withoutReply() }
        asked = nil
        keep(transcript)
        conversations = folder?.conversations ?? []
        state = .ready
        saveWhenQuiet()
    }

    /// Appends parts to the last message, and saves the conversation from time to time.
    private func append(
        _ parts: AsyncThrowingStream<H2OSession.Part, any Error>, of session: H2OSession,
        _ opened: Int
    ) async throws {
        guard var message = messages.last else { return }
        // The part of the reply that the session does not have yet.
        var arriving = H2OMessage.assistant(
            message.text, thoughts: message.thoughts, isCutOff: true)
        let clock = ContinuousClock()
        var (lastShown, lastKept) = (clock.now, clock.now)
        for try await part in parts {
            guard opened == self.opened else { return }
            switch part {
            case .text(let new):
                message.text += new
                arriving.text += new
            case .thought(let new):
                message.thoughts += new
                arriving.thoughts = (arriving.thoughts ?? "") + new
            case .usage(let usage): self.usage = usage
            case .toolResult: arriving = .assistant("", isCutOff: true)
            case .toolCall, .malformedToolCall: break
            }
            if lastShown.duration(to: clock.now) >= pace.shows {
                lastShown = clock.now
                messages[messages.count - 1] = message
            }
            if lastKept.duration(to: clock.now) >= pace.keeps {
                lastKept = clock.now
                let earlier = await session.transcript
                let isWhole = earlier.last?.role == .assistant
                keep(earlier + (isWhole ? [] : [arriving]))
                memory = await session.memory
                guard opened == self.opened else { return }
            }
        }
    }

    private func keep(_ messages: some Sequence<H2OMessage>) {
        do {
            try folder?[conversation].keep(Array(messages))
        } catch {
            show(error)
        }
    }

    private func saveWhenQuiet() {
        guard folder != nil else { return }
        saving = Task { [weak self, quiet = pace.quiet] in
            try? await Task.sleep(for: quiet)
            guard !Task.isCancelled else { return }
            await self?.save()
        }
    }
}

extension H2OChat {
    /// A saved conversation.
    public struct Conversation: Identifiable, Hashable, Sendable {
        public let id: String
        /// The beginning of its first message.
        public let title: String
        /// The time of its last change.
        public let date: Date
    }

    /// A message as the screen shows it.
    public struct Message: Identifiable, Hashable, Sendable {
        /// The index of the message in the session's messages.
        public let id: Int
        /// Whether the user wrote it; otherwise the model did.
        public let isUser: Bool
        public internal(set) var text: String
        /// The model's thoughts before the answer; may be empty.
        public internal(set) var thoughts: String
        /// Whether the user stopped the reply, it reached its limit of tokens, or the app ended.
        public let isCutOff: Bool

        public init(
            id: Int, isUser: Bool, text: String, thoughts: String = "", isCutOff: Bool = false
        ) {
            self.id = id
            self.isUser = isUser
            self.text = text
            self.thoughts = thoughts
            self.isCutOff = isCutOff
        }

        static func shown(_ messages: [H2OMessage]) -> [Message] {
            messages.enumerated().compactMap { index, message in
                let thoughts = message.thoughts ?? ""
                guard message.role == .user || message.role == .assistant,
                    !message.text.isEmpty || !thoughts.isEmpty
                else { return nil }
                return Message(
                    id: index, isUser: message.role == .user, text: message.text,
                    thoughts: thoughts, isCutOff: message.isCutOff)
            }
        }
    }
}
