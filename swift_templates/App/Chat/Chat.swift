import H2OSessions
import Observation

/// The state that the app shows, and its actions.
@MainActor @Observable
final class Chat {
    struct Message: Identifiable {
        let id: Int
        let isUser: Bool
        var text: String
    }

    enum State: Equatable {
        case loading
        case ready
        case replying
        case failed(String)
    }

    private(set) var messages = [Message]()
    private(set) var state = State.loading
    private(set) var usage = H2OSession.Usage()
    private(set) var memory: H2OMemoryReading?
    private(set) var kept: H2OKeptPositions?
    var draft = ""

    private let makeSession: @Sendable () async throws -> H2OSession
    private var session: H2OSession?

    /// - Parameter makeSession: loads the model
    init(makeSession: @escaping @Sendable () async throws -> H2OSession) {
        self.makeSession = makeSession
    }

    /// Loads the model, unless it is loaded already.
    func load() async {
        guard session == nil else { return }
        do {
            session = try await makeSession()
            state = .ready
            await look()
        } catch {
            state = .failed(error.localizedDescription)
        }
    }

    /// Sends the draft and shows the reply as it arrives.
    func send() async {
        guard let session, state == .ready, !draft.isEmpty else { return }
        add(draft, isUser: true)
        let prompt = draft
        draft = ""
        let reply = add("", isUser: false)
        state = .replying
        do {
            for try await part in await session.streamResponse(to: prompt) {
                switch part {
                case .text(let text): append(text, to: reply)
                case .usage(let usage): self.usage = usage
                case .thought, .toolCall: break
                }
            }
        } catch {
            append(error.localizedDescription, to: reply)
        }
        await look()
        state = .ready
    }

    func stop() async {
        await session?.cancel()
    }

    /// Starts a new conversation.
    func clear() async {
        await session?.reset()
        messages = []
        usage = H2OSession.Usage()
        await look()
    }

    @discardableResult
    private func add(_ text: String, isUser: Bool) -> Message.ID {
        let id = (messages.last?.id ?? 0) + 1
        messages.append(Message(id: id, isUser: isUser, text: text))
        return id
    }

    /// Does nothing for a message that was cleared away.
    private func append(_ text: String, to id: Message.ID) {
        guard let index = messages.firstIndex(where: { $0.id == id }) else { return }
        messages[index].text += text
    }

    private func look() async {
        memory = session?.model.memory
        kept = await session?.keptPositions
    }
}
