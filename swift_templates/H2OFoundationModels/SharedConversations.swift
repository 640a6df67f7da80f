#if canImport(FoundationModels, _version: 2)
    import FoundationModels
    import H2OSessions
    import Synchronization

    /// The conversations of a model that is loaded when it is first needed.
    @available(iOS 27, macOS 27, visionOS 27, *)
    package actor SharedConversations {
        private let make: @Sendable () async throws -> H2OModel
        private var loading: Task<ConversationPool, any Error>?
        private var written = [(id: String, text: String)]()
        /// What sessions asked to be read ahead; each follows the one before.
        private let prewarming = Mutex<Task<Void, Never>?>(nil)

        /// Responses whose text is remembered.
        private static let remembered = 256

        package init(_ make: @escaping @Sendable () async throws -> H2OModel) {
            self.make = make
        }

        /// Releases the weights and all conversations' caches, after the requests that are
        /// being answered. The next request loads the model again.
        func unload() {
            loading = nil
        }

        /// The model's conversations. After an error, the next call tries again.
        ///
        /// - Throws: what loading throws
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

        /// Begins to read ahead. Requests that come later wait for it.
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

        /// Returns when what was asked to be read ahead was read.
        nonisolated func prewarmed() async {
            await prewarming.withLock { $0 }?.value
        }

        /// Remembers what the model wrote for a response.
        func remember(_ text: String, as id: String) {
            written.append((id, text))
            written.removeFirst(max(0, written.count - Self.remembered))
        }

        /// What was remembered, by the response's id.
        var writtenByID: [String: String] {
            Dictionary(written.map { ($0.id, $0.text) }, uniquingKeysWith: { $1 })
        }
    }
#endif
