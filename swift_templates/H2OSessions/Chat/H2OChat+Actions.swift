import Foundation

extension H2OChat {
    private typealias Parts = AsyncThrowingStream<H2OSession.Part, any Error>

    /// Whether there is something to send, and nothing else goes on.
    public var canSend: Bool { state == .ready && !prompt.isEmpty }

    /// Sends the draft and shows the reply as it arrives. Where there is none, the draft is as
    /// before, and ``problem`` says why.
    public func send() async {
        guard let session, canSend else { return }
        let (text, index) = (prompt, editing)
        (state, draft, editing) = (.replying, "", nil)
        let before = messages.filter { $0.id < index ?? .max }
        let question = Message(id: index ?? nextID, isUser: true, text: text)
        let parts = await session.streamResponse(to: .user(text), at: index, options: nil)
        await receive(parts, of: session, after: before + [question]) {
            if draft.isEmpty { (draft, editing) = (text, index) }
        }
    }

    /// Asks for another reply to the last message of the user.
    public func regenerate() async {
        guard let session, state == .ready, let last = messages.lastIndex(where: \.isUser) else {
            return
        }
        state = .replying
        let parts = await session.regenerate()
        await receive(parts, of: session, after: Array(messages[...last])) {}
    }

    /// Ends the reply; the part that was generated stays.
    public func stop() async { await session?.cancel() }

    /// Takes a message of the user as the draft. Sending it replaces that message and all that
    /// follow.
    public func edit(_ id: Message.ID) {
        guard state == .ready, let message = messages.first(where: { $0.id == id && $0.isUser })
        else { return }
        (draft, editing) = (message.text, id)
    }

    /// Leaves the conversation as it is.
    public func cancelEditing() { (draft, editing) = ("", nil) }

    /// Starts a new conversation, and deletes the earlier one.
    public func clear() async {
        guard let session else { return }
        conversations += 1
        await session.reset()
        folder?.delete()
        (problem, editing, usage) = (nil, nil, H2OSession.Usage())
        await show(session)
        state = .ready
    }

    private var prompt: String { draft.trimmingCharacters(in: .whitespacesAndNewlines) }

    private var nextID: Message.ID { (messages.last?.id ?? 0) + 1 }

    /// Shows a reply while it arrives, and keeps the conversation.
    private func receive(
        _ parts: Parts, of session: H2OSession, after before: [Message],
        withoutReply: () -> Void
    ) async {
        let conversation = conversations
        problem = nil
        messages = before
        messages.append(Message(id: nextID, isUser: false, text: ""))
        do {
            try await append(parts, conversation)
        } catch {
            guard conversation == conversations else { return }
            problem = error.localizedDescription
            withoutReply()
        }
        guard conversation == conversations else { return }
        await show(session)
        guard conversation == conversations else { return }
        state = .ready
        do {
            try await folder?.save(session)
        } catch {
            if conversation == conversations { problem = error.localizedDescription }
        }
    }

    /// Appends parts to the last message, at most ten times per second.
    private func append(_ parts: Parts, _ conversation: Int) async throws {
        var (text, thoughts) = ("", "")
        let clock = ContinuousClock()
        var shown = clock.now
        for try await part in parts {
            guard conversation == conversations else { return }
            switch part {
            case .text(let new): text += new
            case .thought(let new): thoughts += new
            case .usage(let usage): self.usage = usage
            case .toolCall, .malformedToolCall, .toolResult: break
            }
            guard shown.duration(to: clock.now) > .milliseconds(100) else { continue }
            shown = clock.now
            messages[messages.count - 1].text = text
            messages[messages.count - 1].thoughts = thoughts
        }
    }
}
