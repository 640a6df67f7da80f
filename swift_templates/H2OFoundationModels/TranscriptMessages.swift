#if canImport(FoundationModels, _version: 2)
    import Foundation
    import FoundationModels
    import H2OSessions
    import MLXLMCommon

    /// A transcript as messages of the engine.
    ///
    /// What a model says in one go is one message: its thoughts, its text and its tool calls,
    /// which are entries of their own in the transcript.
    @available(iOS 27, macOS 27, visionOS 27, *)
    struct TranscriptMessages {
        private(set) var messages = [H2OMessage]()
        private var thoughts: String?
        private let written: [String: String]

        /// - Parameters:
        ///   - written: by the id of a response, what the model wrote for it; the framework
        ///     writes structured content in its own way
        /// - Throws: `LanguageModelError.unsupportedCapability` for an image,
        ///   `LanguageModelError.unsupportedTranscriptContent` for what is unknown
        init(_ transcript: Transcript, written: [String: String] = [:]) throws {
            self.written = written
            for entry in transcript { try add(entry) }
        }

        private mutating func add(_ entry: Transcript.Entry) throws {
            switch entry {
            case .instructions(let instructions):
                let text = try instructions.segments.text(in: entry)
                if !text.isEmpty { messages.append(.system(text)) }
            case .prompt(let prompt):
                let text = try prompt.segments.text(in: entry)
                messages.append(.user(text + (try prompt.schemaToShow ?? "")))
            case .response(let response):
                let text = try response.segments.text(in: entry)
                let same = written[response.id].map { $0.isSameJSON(as: text) } ?? false
                say(same ? written[response.id] ?? text : text, calls: [])
            case .toolCalls(let calls):
                say("", calls: try calls.map(H2OToolCall.init))
            case .toolOutput(let output):
                messages.append(
                    .tool(
                        try output.segments.text(in: entry), callID: output.id,
                        name: output.toolName))
            case .reasoning(let reasoning):
                thoughts = (thoughts ?? "") + (try reasoning.segments.text(in: entry))
            @unknown default:
                // Apple's later entries are of apps and other models, and have no role here.
                break
            }
        }

        /// Adds to what the model says, or lets it begin.
        private mutating func say(_ text: String, calls: [H2OToolCall]) {
            var message = H2OMessage.assistant("")
            if let last = messages.last, last.role == .assistant {
                message = last
                messages.removeLast()
            }
            message.text += text
            message.toolCalls += calls
            if let thoughts { message.thoughts = (message.thoughts ?? "") + thoughts }
            thoughts = nil
            messages.append(message)
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension [Transcript.Segment] {
        fileprivate func text(in entry: Transcript.Entry) throws -> String {
            try map { segment in
                switch segment {
                case .text(let text): return text.content
                case .structure(let structure): return structure.content.jsonString
                case .attachment:
                    throw LanguageModelError.unsupportedCapability(
                        .init(
                            capability: .vision,
                            debugDescription:
                                "The model reads text only, and the transcript has an "
                                + "attachment. Describe it in words."))
                @unknown default:
                    throw LanguageModelError.unsupportedTranscriptContent(
                        .init(
                            unsupportedContent: [entry],
                            debugDescription:
                                "The model reads text and structured content only."))
                }
            }.joined(separator: "\n")
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension Transcript.Prompt {
        /// What tells the model the structure of its answer, if the prompt shall.
        fileprivate var schemaToShow: String? {
            get throws {
                guard contextOptions.includeSchemaInPrompt == true,
                    case .schema(let schema) = responseFormat?.kind
                else { return nil }
                return "\n\nAnswer with JSON of this schema: \(try schema.json)"
            }
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension H2OToolCall {
        fileprivate init(_ call: Transcript.ToolCall) throws {
            let arguments = try JSONDecoder().decode(
                [String: JSONValue].self, from: Data(call.arguments.jsonString.utf8))
            self.init(id: call.id, name: call.toolName, arguments: arguments)
        }
    }

    extension String {
        /// Whether both are JSON and mean the same.
        fileprivate func isSameJSON(as other: String) -> Bool {
            let values = [self, other].map { text in
                try? JSONDecoder().decode(JSONValue.self, from: Data(text.utf8))
            }
            return values[0] != nil && values[0] == values[1]
        }
    }
#endif
