#if canImport(FoundationModels, _version: 2)
    import Foundation
    import FoundationModels
    import H2OSessions

    /// The transcript's entries for one response: one entry for thoughts, one for text, and one for
    /// tool calls.
    @available(iOS 27, macOS 27, visionOS 27, *)
    actor ResponseEntries {
        nonisolated let responseID = UUID().uuidString
        private let reasoningID = UUID().uuidString
        private let callsID = UUID().uuidString
        private let channel: LanguageModelExecutorGenerationChannel
        private var hasCalls = false
        /// The text that the model wrote as an invalid tool call.
        private(set) var malformedCall: String?

        init(_ channel: LanguageModelExecutorGenerationChannel) {
            self.channel = channel
        }

        /// Sends the parts of a reply as they arrive.
        ///
        /// - Parameter reply: generates the reply, and passes each part to the function that it
        ///   receives
        nonisolated(nonsending) func send(
            _ reply: (@escaping @Sendable (H2OSession.Part) -> Void) async throws
                -> H2OSession.Response<String>
        ) async throws -> H2OSession.Response<String> {
            let (stream, parts) = AsyncStream<H2OSession.Part>.makeStream()
            async let sending: Void = {
                for await part in stream { await self.send(part) }
            }()
            let response: H2OSession.Response<String>
            do {
                defer { parts.finish() }
                response = try await reply { parts.yield($0) }
            }
            await sending
            return response
        }

        /// Sends a part with an estimated number of tokens. The usage at the end corrects the number.
        private func send(_ part: H2OSession.Part) async {
            switch part {
            case .text(let text):
                await channel.send(
                    .response(entryID: responseID, action: .appendText(text, tokenCount: 1)))
            case .thought(let text):
                await channel.send(
                    .reasoning(entryID: reasoningID, action: .appendText(text, tokenCount: 1)))
            case .toolCall(let call):
                hasCalls = true
                await channel.send(
                    .toolCalls(
                        entryID: callsID,
                        action: .toolCall(
                            id: call.id, name: call.name,
                            action: .appendArguments(call.argumentsJSON, tokenCount: 1))))
            case .malformedToolCall(let text): malformedCall = malformedCall ?? text
            case .toolResult, .usage: break
            }
        }

        /// Sends the usage of the whole response.
        func send(_ usage: H2OSession.Usage) async {
            let input = LanguageModelExecutorGenerationChannel.Usage.Input(
                totalTokenCount: usage.promptTokens, cachedTokenCount: usage.cachedTokens)
            let output = LanguageModelExecutorGenerationChannel.Usage.Output(
                totalTokenCount: usage.generatedTokens, reasoningTokenCount: usage.thoughtTokens)
            if hasCalls {
                await channel.send(
                    .toolCalls(
                        entryID: callsID, action: .updateUsage(input: input, output: output)))
            } else {
                await channel.send(
                    .response(
                        entryID: responseID, action: .updateUsage(input: input, output: output)))
            }
        }
    }
#endif
