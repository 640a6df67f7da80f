import Synchronization

/// How long executors live, of which Apple's documentation says two things.
public enum ExecutorLifetime: Sendable {
    /// Each session has one.
    case session
    /// Sessions whose models have equal configurations share one.
    case configuration

    /// That of sessions made in this task. Only the stand-in has it.
    @TaskLocal public static var current = ExecutorLifetime.session
}

/// An executor with its model.
struct BoundExecutor: Sendable {
    private let run:
        @Sendable (
            LanguageModelExecutorGenerationRequest, LanguageModelExecutorGenerationChannel
        ) async throws -> Void
    let prewarm: @Sendable (Transcript) -> Void

    private static let shared = Mutex([AnySendableKey: any LanguageModelExecutor]())

    init<Model: LanguageModel>(of model: Model) {
        let made = Result { try Self.executor(of: model) }
        run = { request, channel in
            try await made.get().respond(to: request, model: model, streamingInto: channel)
        }
        prewarm = { transcript in
            try? made.get().prewarm(model: model, transcript: transcript)
        }
    }

    private static func executor<Model: LanguageModel>(of model: Model) throws -> Model.Executor {
        let configuration = model.executorConfiguration
        guard ExecutorLifetime.current == .configuration else {
            return try Model.Executor(configuration: configuration)
        }
        return try shared.withLock { executors in
            let key = AnySendableKey(configuration)
            if let known = executors[key] as? Model.Executor { return known }
            let made = try Model.Executor(configuration: configuration)
            executors[key] = made
            return made
        }
    }

    nonisolated(nonsending) func respond(
        to request: LanguageModelExecutorGenerationRequest,
        onText: @escaping @Sendable (String) -> Void
    ) async throws -> Round {
        let channel = LanguageModelExecutorGenerationChannel()
        let run = run
        return try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                defer { channel.finish() }
                try await run(request, channel)
            }
            var round = Round()
            for await event in channel {
                round.add(event)
                if !round.text.isEmpty { onText(round.text) }
            }
            try await group.waitForAll()
            return round
        }
    }
}

/// A configuration as a key, of whatever type.
private struct AnySendableKey: Hashable, @unchecked Sendable {
    // Made of a Sendable value only, which AnyHashable forgets.
    private let value: AnyHashable

    init(_ value: some Hashable & Sendable) { self.value = AnyHashable(value) }
}
