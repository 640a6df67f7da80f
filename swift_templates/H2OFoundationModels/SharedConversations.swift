#if canImport(FoundationModels, _version: 2)
    import FoundationModels
    import H2OSessions
    import Synchronization

    /// The conversations of a model that is loaded at its first use.
    @available(iOS 27, macOS 27, visionOS 27, *)
    package actor SharedConversations {
        private let make: @Sendable () async throws -> H2OModel
        private var loading: Task<ConversationPool, any Error>?
        private var written = [(id: String, text: String)]()
        /// The last task that reads a transcript in advance; it waits for the earlier tasks.
        private let prewarming = Mutex<Task<Void, Never>?>(nil)

        /// The number of responses whose text is stored.
        private static let remembered = 256

        package init(_ make: @escaping @Sendable () async throws -> H2OModel) {
            self.make = make
        }

        /// Releases the weights and all conversations' caches. Running requests keep them until
        /// they end. The next request loads the model again.
        func unload() {
            loading = nil
        }

        /// The model's conversations. After an error, the next call tries again.
        ///
        /// - Throws: the error of loading
        func load() async throws -> ConversationPool {
            let task = loading ?? Task { [make] in ConversationPool(try await make()) }
            loading = task
            do {
                return try await task.value
            } catch {
                if loading == task { loading = nil }
                throw error
            }
        }

        /// Begins to read a transcript in advance. Later requests wait until it is read.
        nonisolated func prewarm(
            _ read: @escaping @Sendable (ConversationPool, [String: String]) async throws -> Void
        ) {
            prewarming.withLock { last in
                last = Task { [before = last] in
                    await before?.value
                    try? await read(load(), writtenByID)
                }
            }
        }

        /// Returns when all transcripts that were to be read in advance are read.
        nonisolated func prewarmed() async {
            await prewarming.withLock { $0 }?.value
        }

        /// Stores the text that the model wrote for a response.
        func remember(_ text: String, as id: String) {
            written.append((id, text))
            written.removeFirst(max(0, written.count - Self.remembered))
        }

        /// The stored texts, by the id of the response.
        var writtenByID: [String: String] {
            Dictionary(written.map { ($0.id, $0.text) }, uniquingKeysWith: { $1 })
        }
    }
#endif
