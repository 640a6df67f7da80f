extension LanguageModelSession {
    public struct Response<Content> {
        public let content: Content
        /// From the prompt on.
        public let transcriptEntries: ArraySlice<Transcript.Entry>
        public let usage: Usage

        init(content: Content, _ reply: Reply) {
            self.content = content
            transcriptEntries = reply.entries[...]
            usage = reply.usage
        }
    }

    /// The tokens of a response's rounds together.
    public struct Usage: Sendable {
        public var input = Input(totalTokenCount: 0, cachedTokenCount: 0)
        public var output = Output(totalTokenCount: 0, reasoningTokenCount: 0)

        public struct Input: Sendable {
            public var totalTokenCount: Int
            public var cachedTokenCount: Int
        }

        public struct Output: Sendable {
            public var totalTokenCount: Int
            public var reasoningTokenCount: Int
        }
    }

    public struct ResponseStream: AsyncSequence {
        let snapshots: AsyncThrowingStream<Snapshot, any Error>

        public struct Snapshot: Sendable {
            public var content: String
        }

        public func makeAsyncIterator() -> AsyncThrowingStream<Snapshot, any Error>.Iterator {
            snapshots.makeAsyncIterator()
        }
    }

    /// A response that is being put together from rounds.
    struct Reply {
        var entries: [Transcript.Entry]
        var text = ""
        var usage = Usage()

        mutating func add(_ round: Round, schema: GenerationSchema?) {
            entries += round.entries(schema: schema)
            text = round.text
            guard let used = round.usage else { return }
            usage.input.totalTokenCount += used.input.totalTokenCount
            usage.input.cachedTokenCount += used.input.cachedTokenCount
            usage.output.totalTokenCount += used.output.totalTokenCount
            usage.output.reasoningTokenCount += used.output.reasoningTokenCount
        }
    }
}
