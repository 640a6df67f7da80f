import H2OKit
import MLXLMCommon

extension H2OSession {
    /// Lets the model answer the last message. While it calls tools, it gets their answers and
    /// goes on.
    ///
    /// - Throws: ``H2OSessionError/tooManyToolRounds(_:)``, or an error of the conversation
    func completeTurn(
        _ options: Options, _ emit: @Sendable (Part) -> Void
    ) async throws -> Response {
        var whole = Response()
        for round in 0... {
            let response = try await conversation.respond(
                to: messages, tools: tools.map(\.definition), options: options
            ) { part in
                if case .usage = part { return }
                emit(part)
            }
            messages.append(response.message)
            whole.add(response)
            let isCalling = !response.toolCalls.isEmpty
            guard isCalling, round < options.maxToolRounds || response.isCancelled else {
                if isCalling { throw H2OSessionError.tooManyToolRounds(options.maxToolRounds) }
                break
            }
            for call in response.toolCalls {
                let answer = await answer(call)
                messages.append(answer)
                emit(.toolResult(answer))
            }
            guard !response.isCancelled, !Task.isCancelled else {
                whole.usage.stop = .cancelled
                break
            }
        }
        emit(.usage(whole.usage))
        return whole
    }

    /// What a tool answers, or the text of its error.
    private func answer(_ call: H2OToolCall) async -> H2OMessage {
        var text = "There is no tool named \(call.name)."
        if let tool = tools.first(where: { $0.definition.name == call.name }) {
            do {
                try Task.checkCancellation()
                text = try await tool.call(call.arguments)
            } catch {
                text = "Error: \(error.localizedDescription)"
            }
        }
        return .tool(text, callID: call.id, name: call.name)
    }
}

extension H2OSession.Response {
    fileprivate var isCancelled: Bool { usage.stop == .cancelled }

    /// Adds a round that follows: its calls take the place of those that were answered.
    fileprivate mutating func add(_ next: Self) {
        text += next.text
        thoughts += next.thoughts
        toolCalls = []
        malformedToolCalls += next.malformedToolCalls
        usage.add(next.usage)
    }
}

extension H2OSession.Usage {
    fileprivate mutating func add(_ next: Self) {
        if stop == nil {
            self = next
            return
        }
        promptTokens = next.promptTokens
        readTokens += next.readTokens
        generatedTokens += next.generatedTokens
        thoughtTokens += next.thoughtTokens
        recalled = recalled.flatMap { before in next.recalled.map { before + $0 } }
        duration += next.duration
        stop = next.stop
    }
}
