/// What a transcript must be to be continued.
enum Transcript {
    /// - Throws: ``H2OSessionError/emptyPrompt``, ``H2OSessionError/duplicateTool(_:)``, or
    ///   ``H2OSessionError/contradictoryTranscript(_:)`` if no conversation can have gone so
    static func check(_ messages: [H2OMessage], _ tools: [H2OToolDefinition]) throws {
        var names = Set<String>()
        for tool in tools where !names.insert(tool.name).inserted {
            throw H2OSessionError.duplicateTool(tool.name)
        }
        guard let last = messages.last else { throw H2OSessionError.emptyPrompt }
        if last.role == .user, last.text.isEmpty { throw H2OSessionError.emptyPrompt }
        guard last.role == .user || last.role == .tool else {
            throw H2OSessionError.contradictoryTranscript(.endsWith(last.role))
        }
        var pending = [String]()
        var used = Set<String>()
        for (index, message) in messages.enumerated() {
            switch message.role {
            case .system where index > 0:
                throw H2OSessionError.contradictoryTranscript(.systemMessage(at: index))
            case .tool:
                guard let id = message.toolCallID, let call = pending.firstIndex(of: id) else {
                    throw H2OSessionError.contradictoryTranscript(
                        .unaskedAnswer(id: message.toolCallID ?? "", at: index))
                }
                pending.remove(at: call)
            case .system, .user, .assistant:
                if let id = pending.first {
                    throw H2OSessionError.contradictoryTranscript(
                        .unansweredCall(id: id, at: index))
                }
                pending = message.toolCalls.map(\.id)
                for id in pending where !used.insert(id).inserted {
                    throw H2OSessionError.contradictoryTranscript(.repeatedCall(id: id, at: index))
                }
            }
        }
        if let id = pending.first {
            throw H2OSessionError.contradictoryTranscript(
                .unansweredCall(id: id, at: messages.count))
        }
    }
}
