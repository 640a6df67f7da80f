import Foundation
import H2OKit

/// Where a chat keeps its conversation: its messages, and the session with its caches.
///
/// The messages are in a file of their own, so that they outlive caches that another version
/// of the app cannot use.
struct ChatFolder: Sendable {
    let url: URL

    private var messages: URL { url.appending(path: "messages.json") }
    private var session: URL { url.appending(path: "session", directoryHint: .isDirectory) }

    /// - Throws: an error of writing; messages are written first
    func save(_ session: H2OSession) async throws {
        try FileManager.default.createPrivateDirectory(at: url)
        try url.excludeFromBackup()
        try await JSONEncoder().encode(session.messages).write(to: messages, options: .atomic)
        try await session.save(to: self.session)
    }

    /// The session as it was saved, with the tools and options of a new one. Where its caches
    /// cannot be used, the new one has its messages, which the next reply reads again; where
    /// there is nothing, the session is the new one.
    func restore(_ new: H2OSession) async -> H2OSession {
        if let session = try? await H2OSession.restore(
            from: session, model: new.model, tools: new.tools, options: new.options)
        {
            return session
        }
        if let data = try? Data(contentsOf: messages),
            let said = try? JSONDecoder().decode([H2OMessage].self, from: data)
        {
            try? await new.setMessages(said)
        }
        return new
    }

    func delete() {
        try? FileManager.default.removeItem(at: url)
    }
}
