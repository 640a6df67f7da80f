import Foundation
import H2OKit
import H2OSessions

/// The folder in which a chat keeps its settings and its conversations, each in a subfolder.
struct ChatFolder: Sendable {
    struct Settings: Codable {
        var thinks: Bool
        var maxTokens: Int?
    }

    let url: URL

    /// The saved conversations, the newest first.
    var conversations: [H2OChat.Conversation] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: url.path)) ?? []
        return names.filter { UUID(uuidString: $0) != nil }
            .compactMap { name in self[name].entry(name) }
            .sorted { ($0.date, $0.id) > ($1.date, $1.id) }
    }

    /// Checks that conversations can be opened, so that none is taken for an empty one.
    ///
    /// - Throws: `H2OCacheError.locked`
    func checkReadable() throws {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: url.path)) ?? []
        for name in names where UUID(uuidString: name) != nil { try self[name].checkReadable() }
    }

    subscript(id: String) -> ChatConversationFolder {
        ChatConversationFolder(url: url.appending(path: id, directoryHint: .isDirectory))
    }

    private var file: URL { url.appending(path: "settings.json") }

    var settings: Settings? {
        get {
            (try? RegularFile.data(file)).flatMap {
                try? JSONDecoder().decode(Settings.self, from: $0)
            }
        }
        nonmutating set {
            try? FileManager.default.createPrivateDirectory(at: url)
            try? JSONEncoder().encode(newValue).write(to: file, options: .atomic)
        }
    }
}

/// The folder of one conversation, with its messages and the session's caches.
///
/// The messages have their own file. They are therefore on disk before a reply has ended, and
/// another version of the app can read them even if it cannot use the caches.
struct ChatConversationFolder: Sendable {
    private struct Messages: Codable {
        let messages: [H2OMessage]
        let date: Date
    }

    let url: URL

    private var messages: URL { url.appending(path: "messages.json") }
    private var session: URL { url.appending(path: "session", directoryHint: .isDirectory) }

    /// - Throws: `H2OCacheError.locked`
    func checkReadable() throws {
        do {
            try RegularFile.check(messages)
        } catch {
            if case .locked? = H2OCacheError(fileError: error, messages) {
                throw H2OCacheError.locked(messages)
            }
        }
    }

    private var contents: Messages? {
        (try? RegularFile.data(messages)).flatMap {
            try? JSONDecoder().decode(Messages.self, from: $0)
        }
    }

    /// The conversation's entry in the list; nil if the folder contains no conversation.
    func entry(_ id: String) -> H2OChat.Conversation? {
        guard let contents, let first = contents.messages.first(where: { $0.role == .user })
        else { return nil }
        let line = first.text.prefix { !$0.isNewline }
        return H2OChat.Conversation(
            id: id, title: String(line.prefix(Self.titleLength)), date: contents.date)
    }

    private static let titleLength = 60

    /// Writes the messages without the caches.
    ///
    /// - Throws: an error of writing
    func keep(_ messages: [H2OMessage]) throws {
        let contents = Messages(messages: messages, date: .now)
        let data = try JSONEncoder().encode(contents)
        do {
            try FileManager.default.createPrivateDirectory(at: url)
            try url.excludeFromBackup()
            try data.write(to: self.messages, options: .atomic)
        } catch {
            throw H2OCacheError(fileError: error, self.messages) ?? error
        }
    }

    /// Writes the messages, and then the session with its caches.
    ///
    /// - Throws: an error of writing
    func save(_ session: H2OSession) async throws {
        try await keep(session.transcript)
        do {
            try await session.save(to: self.session)
        } catch H2OSessionError.nothingToSave {}
    }

    /// Restores the saved session with the tools and options of `new`, and adds the messages that
    /// are newer than the saved caches. If the caches cannot be used, returns `new` with all saved
    /// messages, which the next reply reads again. If the folder is empty, returns `new`.
    func restore(_ new: H2OSession) async -> H2OSession {
        let saved = try? await H2OSession.restore(
            from: session, model: new.model, tools: new.tools, options: new.options)
        let session = saved ?? new
        if let contents, await session.transcript != contents.messages {
            try? await session.setTranscript(contents.messages)
        }
        return session
    }

    /// Deletes the folder if it has the name of a conversation.
    func delete() {
        guard UUID(uuidString: url.lastPathComponent) != nil else { return }
        try? FileManager.default.removeItem(at: url)
    }
}

/// The text of an error for the user of the app, not for its developer.
enum ChatProblem {
    static func text(_ error: any Error) -> String {
        switch error {
        case H2OLoadingError.noMemory:
            "There is not enough free memory for the model. Close other apps, and try again."
        case H2OLoadingError.stopped, H2OLoadingError.network, H2OLoadingError.noSpace:
            error.localizedDescription
        case is H2OLoadingError:
            "The model cannot be loaded. Install the app again."
        case H2OCacheError.noSpace:
            "The conversation was not saved, because the device has no storage left. Free some "
                + "storage."
        case H2OCacheError.locked:
            "The conversations can be opened only after the device is unlocked. Unlock it, and try "
                + "again."
        case is InBackgroundError:
            "The model can answer only while the app is open. Open it, and try again."
        case H2OSessionError.tooHot:
            "The device is too hot. Let it cool down, and try again."
        case H2OSessionError.lowPowerMode:
            "The model does not answer in Low Power Mode. Turn it off, or try again later."
        case H2OSessionError.promptTooLong:
            "The message is too long. Shorten it, or send it in several parts."
        case is H2OSessionError, is H2OCacheError:
            "The model cannot answer this. Try again, or start a new conversation."
        case let error as any LocalizedError:
            error.localizedDescription
        default: "Something went wrong. Try again."
        }
    }
}
