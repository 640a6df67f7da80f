/// Where an executor streams its response to. Nobody but the session sees what an event holds.
public struct LanguageModelExecutorGenerationChannel: Sendable, AsyncSequence {
    private let events: AsyncStream<Event>
    private let continuation: AsyncStream<Event>.Continuation

    public init() { (events, continuation) = AsyncStream.makeStream() }

    public func send(_ event: Event) async { continuation.yield(event) }

    public func makeAsyncIterator() -> AsyncStream<Event>.Iterator {
        events.makeAsyncIterator()
    }

    func finish() { continuation.finish() }

    public struct Event: Sendable {
        let entryID: String?
        let content: Content

        enum Content: Sendable {
            case response(Response.Action)
            case reasoning(Reasoning.Action)
            case toolCalls(ToolCalls.Action)
        }

        public static func response(
            entryID: String? = nil, action: Response.Action
        ) -> Event {
            Event(entryID: entryID, content: .response(action))
        }

        public static func reasoning(
            entryID: String? = nil, action: Reasoning.Action
        ) -> Event {
            Event(entryID: entryID, content: .reasoning(action))
        }

        public static func toolCalls(
            entryID: String? = nil, action: ToolCalls.Action
        ) -> Event {
            Event(entryID: entryID, content: .toolCalls(action))
        }
    }

    public enum Response {
        public struct Action: Sendable {
            let kind: Kind

            enum Kind: Sendable {
                case appendText(String)
                case updateMetadata([String: GeneratedContent])
                case updateUsage(Usage)
            }

            public static func appendText(
                _ text: String, segmentID: String? = nil, tokenCount: Int
            ) -> Action {
                Action(kind: .appendText(text))
            }

            public static func updateMetadata(
                _ values: [String: any ConvertibleToGeneratedContent]
            ) -> Action {
                Action(kind: .updateMetadata(values.mapValues(\.generatedContent)))
            }

            public static func updateUsage(
                input: Usage.Input, output: Usage.Output,
                metadata: [String: any ConvertibleToGeneratedContent] = [:]
            ) -> Action {
                Action(kind: .updateUsage(Usage(input: input, output: output)))
            }
        }
    }

    public enum Reasoning {
        public struct Action: Sendable {
            let text: String

            public static func appendText(
                _ text: String, segmentID: String? = nil, tokenCount: Int
            ) -> Action {
                Action(text: text)
            }
        }
    }

    public enum ToolCalls {
        public struct Action: Sendable {
            let kind: Kind

            enum Kind: Sendable {
                case arguments(id: String, name: String, text: String)
                case updateUsage(Usage)
            }

            public static func toolCall(
                id: String, name: String, action: ToolCall.Action
            ) -> Action {
                Action(kind: .arguments(id: id, name: name, text: action.arguments))
            }

            public static func updateUsage(
                input: Usage.Input, output: Usage.Output,
                metadata: [String: any ConvertibleToGeneratedContent] = [:]
            ) -> Action {
                Action(kind: .updateUsage(Usage(input: input, output: output)))
            }
        }

        public enum ToolCall {
            public struct Action: Sendable {
                let arguments: String

                public static func appendArguments(
                    _ content: String, tokenCount: Int
                ) -> Action {
                    Action(arguments: content)
                }
            }
        }
    }

    public struct Usage: Sendable {
        public var input: Input
        public var output: Output

        public struct Input: Sendable {
            public var totalTokenCount: Int
            public var cachedTokenCount: Int

            public init(totalTokenCount: Int, cachedTokenCount: Int) {
                self.totalTokenCount = totalTokenCount
                self.cachedTokenCount = cachedTokenCount
            }
        }

        public struct Output: Sendable {
            public var totalTokenCount: Int
            public var reasoningTokenCount: Int

            public init(totalTokenCount: Int, reasoningTokenCount: Int) {
                self.totalTokenCount = totalTokenCount
                self.reasoningTokenCount = reasoningTokenCount
            }
        }
    }
}
