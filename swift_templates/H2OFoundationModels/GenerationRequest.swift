#if canImport(FoundationModels, _version: 2)
    import Foundation
    import FoundationModels
    import H2OSessions
    import MLXLMCommon

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension LanguageModelExecutorGenerationRequest {
        /// The tools that the model may call now.
        var callableTools: [Transcript.ToolDefinition] {
            generationOptions.toolCallingMode?.kind == .disallowed ? [] : enabledToolDefinitions
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension Transcript {
        /// The tools in the transcript's newest instructions.
        var tools: [ToolDefinition] {
            for case .instructions(let instructions) in reversed() {
                return instructions.toolDefinitions
            }
            return []
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension H2OToolDefinition {
        /// Converts a tool of a transcript.
        ///
        /// - Throws: ``H2OSessionError``
        init(_ tool: Transcript.ToolDefinition) throws {
            let parameters = try JSONDecoder().decode(
                JSONValue.self, from: Data(try tool.parameters.json.utf8))
            try self.init(
                name: tool.name, description: tool.description, parameters: parameters)
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension GenerationSchema {
        /// The schema as JSON; equal schemas give equal texts.
        var json: String {
            get throws {
                let encoder = JSONEncoder()
                encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
                return String(decoding: try encoder.encode(self), as: UTF8.self)
            }
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension H2OSession {
        /// Generates a value of a type with Apple's `@Generable`.
        ///
        /// - Parameters:
        ///   - prompt: the message
        ///   - options: options that replace the session's own; their schema is that of the type
        /// - Throws: the same errors as `respond(to:options:)`, or the type's own error if it
        ///   refuses the reply, which then stays in the conversation
        public func respond<Content: Generable & Sendable>(
            to prompt: String, generating type: Content.Type = Content.self,
            options: Options? = nil
        ) async throws -> Response<Content> {
            var options = options ?? self.options
            options.schema = try H2OSchema(type.generationSchema.json)
            return try await respond(to: prompt, options: options).map {
                try Content(GeneratedContent(json: $0))
            }
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension H2OSession.Options {
        /// These options with the options of a request.
        ///
        /// - Throws: `H2OSessionError` if the schema is not supported
        func applying(_ request: LanguageModelExecutorGenerationRequest) throws -> Self {
            var options = self
            options.sampling = sampling.applying(request.generationOptions)
            options.maxTokens = request.generationOptions.maximumResponseTokens ?? maxTokens
            options.thinking = request.contextOptions.reasoningLevel?.thinks ?? thinking
            options.requiresToolCall = request.generationOptions.toolCallingMode?.kind == .required
            if let schema = request.schema { options.schema = try H2OSchema(schema.json) }
            return options
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension H2OSampling {
        /// A request's sampling mode replaces all sampling settings, and its temperature only the
        /// temperature. Temperature 0 is greedy in every mode.
        fileprivate func applying(_ options: GenerationOptions) -> H2OSampling {
            var sampling = self
            switch options.samplingMode?.kind {
            case .greedy: return .greedy
            case .randomTopK(let count, let seed):
                (sampling.topK, sampling.topP, sampling.minP) = (max(0, count), 1, 0)
                sampling.seed = seed ?? sampling.seed
            case .randomProbabilityThreshold(let threshold, let seed):
                guard threshold > 0 else { return .greedy }
                (sampling.topK, sampling.topP, sampling.minP) = (0, Float(threshold), 0)
                sampling.seed = seed ?? sampling.seed
            case nil: break
            @unknown default: break
            }
            if let temperature = options.temperature {
                sampling.temperature = Float(max(0, temperature))
            }
            return sampling
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension ContextOptions.ReasoningLevel {
        /// Whether the model thinks. It has no levels of thinking. As in mlx-swift-lm, the custom
        /// level "no_think" turns thinking off.
        fileprivate var thinks: Bool {
            if case .custom("no_think") = self { false } else { true }
        }
    }

    /// A transcript as messages of the session.
    ///
    /// The transcript has separate entries for the model's thoughts, text and tool calls.
    /// Consecutive entries of the model become one message.
    @available(iOS 27, macOS 27, visionOS 27, *)
    struct TranscriptMessages {
        private(set) var messages = [H2OMessage]()
        private var thoughts: String?
        /// The newest instructions so far.
        private var instructions = ""
        /// Changed instructions. They are written before the next prompt, because chat templates
        /// have a place for only one system message.
        private var changed = ""
        private let written: [String: String]

        /// - Parameters:
        ///   - written: the text that the model wrote for each response, by the response's id. It
        ///     replaces the transcript's text, in which the framework formats structured content
        ///     differently
        /// - Throws: `LanguageModelError.unsupportedCapability` for an image,
        ///   `LanguageModelError.unsupportedTranscriptContent` for unknown content
        init(_ transcript: Transcript, written: [String: String] = [:]) throws {
            self.written = written
            for entry in transcript { try add(entry) }
            removeRestOfHistory()
        }

        /// Removes the model's messages before the first prompt, and outputs of tools whose calls are
        /// missing, because a shortened history may begin in the middle of a turn.
        private mutating func removeRestOfHistory() {
            let begin = messages.prefix { $0.role == .system }.count
            let isAnswered = messages[begin...].contains { $0.role == .user }
            let rest = messages[begin...].prefix {
                $0.role == .tool || isAnswered && $0.role == .assistant
            }
            messages.removeSubrange(begin ..< begin + rest.count)
        }

        private mutating func add(_ entry: Transcript.Entry) throws {
            switch entry {
            case .instructions(let instructions):
                let text = try instructions.segments.text(in: entry)
                guard !text.isEmpty, text != self.instructions else { return }
                if messages.isEmpty { messages.append(.system(text)) } else { changed = text }
                self.instructions = text
            case .prompt(let prompt):
                let text = try prompt.segments.text(in: entry)
                let before = changed.isEmpty ? "" : changed + "\n\n"
                changed = ""
                messages.append(.user(before + text + (try prompt.schemaToShow ?? "")))
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
                // Ignores other kinds of entries, which belong to apps and other models.
                break
            }
        }

        /// Adds text or calls to the model's last message, or begins a new message.
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
        /// The text that describes the structure of the answer, if the prompt should contain it.
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
        /// Whether both texts are JSON with the same value.
        fileprivate func isSameJSON(as other: String) -> Bool {
            let values = [self, other].map { text in
                try? JSONDecoder().decode(JSONValue.self, from: Data(text.utf8))
            }
            return values[0] != nil && values[0] == values[1]
        }
    }
#endif
