import Foundation

/// What an executor sent for one request, put together by the ids of its entries.
struct Round: Sendable {
    private(set) var usage: LanguageModelExecutorGenerationChannel.Usage?
    private var order = [String]()
    private var parts = [String: Part]()

    private enum Part: Sendable {
        case response(String, metadata: [String: GeneratedContent])
        case reasoning(String)
        case calls([Call])
    }

    private struct Call: Sendable {
        let id: String
        let name: String
        var arguments: String
    }

    /// The text of its response.
    var text: String {
        for case .response(let text, _) in parts.values { return text }
        return ""
    }

    var calls: [Transcript.ToolCall]? {
        for case .calls(let calls) in parts.values {
            return calls.map { call in
                Transcript.ToolCall(
                    id: call.id, toolName: call.name,
                    arguments: (try? GeneratedContent(json: call.arguments))
                        ?? GeneratedContent(.null))
            }
        }
        return nil
    }

    mutating func add(_ event: LanguageModelExecutorGenerationChannel.Event) {
        switch event.content {
        case .response(let action):
            let id = event.entryID ?? "response"
            switch action.kind {
            case .updateUsage(let usage): self.usage = usage
            case .appendText(let more):
                guard case .response(let text, let metadata) = part(id) else {
                    return put(id, .response(more, metadata: [:]))
                }
                put(id, .response(text + more, metadata: metadata))
            case .updateMetadata(let metadata):
                guard case .response(let text, _) = part(id) else {
                    return put(id, .response("", metadata: metadata))
                }
                put(id, .response(text, metadata: metadata))
            }
        case .reasoning(let action):
            let id = event.entryID ?? "reasoning"
            guard case .reasoning(let text) = part(id) else {
                return put(id, .reasoning(action.text))
            }
            put(id, .reasoning(text + action.text))
        case .toolCalls(let action):
            switch action.kind {
            case .updateUsage(let usage): self.usage = usage
            case .arguments(let id, let name, let text):
                add(Call(id: id, name: name, arguments: text), to: event.entryID ?? "calls")
            }
        }
    }

    private mutating func add(_ call: Call, to entry: String) {
        guard case .calls(var calls) = part(entry) else { return put(entry, .calls([call])) }
        if let index = calls.firstIndex(where: { $0.id == call.id }) {
            calls[index].arguments += call.arguments
        } else {
            calls.append(call)
        }
        put(entry, .calls(calls))
    }

    private func part(_ id: String) -> Part? { parts[id] }

    private mutating func put(_ id: String, _ part: Part) {
        if parts.updateValue(part, forKey: id) == nil { order.append(id) }
    }

    /// The transcript's entries, in the order in which they began.
    func entries(schema: GenerationSchema?) -> [Transcript.Entry] {
        order.compactMap { id in
            switch parts[id] {
            case .response(let text, let metadata):
                .response(
                    Transcript.Response(
                        id: id, metadata: metadata, segments: [segment(text, schema: schema)]))
            case .reasoning(let text):
                .reasoning(
                    Transcript.Reasoning(
                        id: id, segments: [.text(Transcript.TextSegment(content: text))]))
            case .calls: .toolCalls(Transcript.ToolCalls(id: id, calls ?? []))
            case nil: nil
            }
        }
    }

    private func segment(_ text: String, schema: GenerationSchema?) -> Transcript.Segment {
        guard let schema, let content = try? GeneratedContent(json: text) else {
            return .text(Transcript.TextSegment(content: text))
        }
        return .structure(
            Transcript.StructuredSegment(schemaName: schema.name, content: content))
    }
}
