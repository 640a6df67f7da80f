import Foundation

extension H2OSession {
    /// Writes the conversation to a folder, so that it goes on in another process. A process
    /// that is ended meanwhile leaves what was there before. Saved after each turn, the folder
    /// has snapshots of earlier turns too, as many as ``H2OSnapshotLimits/files`` allows.
    ///
    /// The folder is the user's conversation: put it where it is not seen by others, and delete
    /// it with the conversation. Where archives are in files, it has them too, as links to the
    /// same files where the file system allows.
    ///
    /// - Parameter folder: is made if it is not there. A reply that is being generated ends
    ///   first
    /// - Throws: ``H2OSessionError/nothingToSave`` before the first reply,
    ///   `H2OCacheError.notSavable` for a model with caches of another kind, or an error of writing
    public func save(to folder: URL) async throws {
        try await afterReplies { session in
            try await session.conversation.save(session.messages, to: folder)
        }
    }

    /// A conversation that ``save(to:)`` wrote. It reads nothing again.
    ///
    /// - Parameters:
    ///   - folder: stays as it is
    ///   - model: the one that the conversation was held with
    ///   - tools: as they were: with others, the next reply reads the conversation again
    ///   - options: for replies that are asked for without options of their own
    /// - Throws: `H2OCacheError` for a folder of another model, policy, template or version, and
    ///   for damaged files; or an error of reading
    public static func restore(
        from folder: URL, model: H2OModel, tools: [H2OTool] = [], options: Options = Options()
    ) async throws -> H2OSession {
        let conversation = Conversation(model: model)
        let messages = try await conversation.restore(from: folder)
        return H2OSession(conversation, messages: messages, tools: tools, options: options)
    }
}
