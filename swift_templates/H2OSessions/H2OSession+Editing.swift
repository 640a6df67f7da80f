extension H2OSession {
    /// Replaces the conversation, as after an edit of an earlier message. The next reply reads
    /// again only what comes after the nearest snapshot before the change.
    ///
    /// - Throws: ``H2OSessionError/busy`` while a reply is being generated
    public func setMessages(_ messages: [H2OMessage]) async throws {
        guard !isResponding else { throw H2OSessionError.busy }
        try await afterReplies { $0.messages = messages }
    }

    /// Another reply to the last message of the user, in place of the one that there is. With
    /// sampling it may be another one.
    ///
    /// - Parameter options: instead of the session's
    /// - Returns: as ``streamResponse(to:options:)-(String,_)``
    public func regenerate(
        options: Options? = nil
    ) -> AsyncThrowingStream<Part, any Error> {
        guard let last = messages.lastIndex(where: { $0.role == .user }) else {
            return AsyncThrowingStream { $0.finish(throwing: H2OSessionError.emptyPrompt) }
        }
        return streamResponse(to: messages[last], at: last, options: options)
    }

    /// Another session with the same conversation, instructions and tools, which both go on by
    /// themselves. A reply that is being generated ends first.
    ///
    /// - Throws: `H2OCacheError.archive` where files of the archive are not as they were
    ///   written, or an error of the file system
    public func fork() async throws -> H2OSession {
        try await afterReplies { session in
            let conversation = try await session.conversation.fork()
            return H2OSession(
                conversation, messages: session.messages,
                tools: session.tools, options: session.options)
        }
    }
}
