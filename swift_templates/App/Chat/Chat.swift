import H2OKit
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
    private(set) var statistics = H2OReplyStatistics()
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
        add("", isUser: false)
        state = .replying
        do {
            for try await part in await session.reply(to: prompt) {
                messages[messages.count - 1].text += part.text
                statistics = part.statistics
                if part.statistics.replyTokens % 16 == 0 { await look() }
            }
        } catch {
            messages[messages.count - 1].text += error.localizedDescription
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
        statistics = H2OReplyStatistics()
        await look()
    }

    private func add(_ text: String, isUser: Bool) {
        messages.append(Message(id: messages.count, isUser: isUser, text: text))
    }

    private func look() async {
        memory = await session?.memory
        kept = await session?.keptPositions
    }
}
