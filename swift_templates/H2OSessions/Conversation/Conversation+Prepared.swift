import H2OKit
import MLXLMCommon

extension Conversation {
    /// Begins after the system prompt that the package was made with, if there is one and this
    /// conversation has the same. Nothing was read so far.
    ///
    /// - Parameter opening: the tokens of the first turn
    func beginPrepared(_ opening: PromptFormat.Opening) async throws {
        let prepared: PreparedPrompt
        switch loaded.prepared {
        case nil: return
        case .failure(let problem):
            preparedPromptProblem = problem
            return
        case .success(let found): prepared = found
        }
        preparedPromptProblem = prepared.problem(
            with: opening.tokens, pinned: opening.pinned, made: caches)
        guard preparedPromptProblem == nil else { return }
        do {
            caches = try await loaded.platform.background.withGPU {
                try prepared.copies(for: caches)
            }
        } catch let error as H2OCacheError {
            preparedPromptProblem = .unreadable(error.localizedDescription)
            return
        }
        state?.read.append(prepared.tokens)
        state?.unread.removeFirst(prepared.tokens.count)
    }
}
