import Foundation
import H2OKit
import Observation

/// What a chat screen shows, and what its buttons do. It is not sent anywhere: the model runs
/// on the device.
///
///     @State private var chat = H2OChat { try await BundledModel.load() }
///
/// While a reply arrives, ``messages`` changes at most ten times per second.
@MainActor @Observable
public final class H2OChat {
    public enum State: Hashable, Sendable {
        case loading
        case ready
        case replying
        /// The model is not loaded; ``H2OChat/load()`` tries again.
        case failed
    }

    public internal(set) var state = State.loading
    /// The conversation without its instructions and what tools answered.
    public internal(set) var messages = [Message]()
    /// Why the model is not loaded, or why the last message has no reply.
    public internal(set) var problem: String?
    /// Of the last reply.
    public internal(set) var usage = H2OSession.Usage()
    /// After the last reply.
    public internal(set) var memory: H2OMemoryReading?
    /// After the last reply.
    public internal(set) var kept: H2OKeptPositions?
    /// The message that the draft will take the place of, with all that follow it.
    public internal(set) var editing: Message.ID?
    /// What the user is writing.
    public var draft = ""

    /// nil until it is loaded.
    public var model: H2OModel? { session?.model }

    let folder: ChatFolder?
    let instructions: String?
    let tools: [H2OTool]
    let options: H2OSession.Options
    private let loadModel: @Sendable () async throws -> H2OModel
    var session: H2OSession?
    private var isLoading = false
    /// How many conversations there were; a reply belongs to one of them.
    var conversations = 0

    /// - Parameters:
    ///   - instructions: of a new conversation
    ///   - tools: what the model may call; calls and answers are not among ``messages``
    ///   - folder: keeps the conversation from launch to launch; nil to forget it
    ///   - options: how replies are made
    ///   - loadModel: loads the model, or gives one that is loaded
    public init(
        instructions: String? = nil, tools: [H2OTool] = [], folder: URL? = nil,
        options: H2OSession.Options = H2OSession.Options(),
        loadModel: @escaping @Sendable () async throws -> H2OModel
    ) {
        self.instructions = instructions
        self.tools = tools
        self.folder = folder.map(ChatFolder.init)
        self.options = options
        self.loadModel = loadModel
    }

    /// Loads the model and the conversation, unless that was done or is being done.
    public func load() async {
        guard session == nil, !isLoading else { return }
        (isLoading, state, problem) = (true, .loading, nil)
        defer { isLoading = false }
        do {
            let model = try await loadModel()
            let new = model.makeSession(
                instructions: instructions, tools: tools, options: options)
            let session = await folder?.restore(new) ?? new
            self.session = session
            await show(session)
            state = .ready
        } catch {
            (state, problem) = (.failed, error.localizedDescription)
        }
    }

    /// Shows the session as it is.
    func show(_ session: H2OSession) async {
        messages = await Message.shown(session.messages)
        kept = await session.keptPositions
        memory = session.model.memory
    }
}

extension H2OChat {
    /// A message as it is shown.
    public struct Message: Identifiable, Hashable, Sendable {
        /// Its index in the session's messages.
        public let id: Int
        /// Whether the user wrote it; the others are the model's.
        public let isUser: Bool
        public internal(set) var text: String
        /// What the model thought before it answered; empty if nothing.
        public internal(set) var thoughts: String

        public init(id: Int, isUser: Bool, text: String, thoughts: String = "") {
            self.id = id
            self.isUser = isUser
            self.text = text
            self.thoughts = thoughts
        }

        static func shown(_ messages: [H2OMessage]) -> [Message] {
            messages.enumerated().compactMap { index, message in
                let thoughts = message.thoughts ?? ""
                guard message.role == .user || message.role == .assistant,
                    !message.text.isEmpty || !thoughts.isEmpty
                else { return nil }
                return Message(
                    id: index, isUser: message.role == .user, text: message.text,
                    thoughts: thoughts)
            }
        }
    }
}
