import MLXLMCommon
import H2OKit

/// A model in memory with what belongs to it. Only jobs on its model's executor use it.
package final class LoadedModel: @unchecked Sendable {
    package let context: ModelContext
    /// What the layers of each conversation get.
    package let caches: H2OCaches
    /// Whether what recall brings back waits in files and not in memory.
    package let archiveInFiles: Bool
    /// Tokens of a prompt that are read at a time.
    package let promptChunk: Int
    /// What the model says of sampling.
    package let sampling: H2OSampling
    package let plan: MemoryPlan?
    package let platform: H2OPlatform
    /// The caches of the system prompt that the package was made with, or why they cannot be
    /// used. nil if there are none.
    let prepared: Result<PreparedPrompt, PreparedPromptProblem>?

    init(
        context: sending ModelContext, caches: H2OCaches, archiveInFiles: Bool, promptChunk: Int,
        sampling: H2OSampling, plan: MemoryPlan?, platform: H2OPlatform,
        prepared: Result<PreparedPrompt, PreparedPromptProblem>?
    ) {
        self.context = context
        self.caches = caches
        self.archiveInFiles = archiveInFiles
        self.promptChunk = max(1, promptChunk)
        self.sampling = sampling
        self.plan = plan
        self.platform = platform
        self.prepared = prepared
    }

    /// Tokens that end the model's turn.
    package var stops: Set<Int> {
        let configuration = context.configuration
        let tokenizer = context.tokenizer
        let extra = configuration.extraEOSTokens.compactMap(tokenizer.convertTokenToId)
        return configuration.eosTokenIds.union(extra)
            .union([tokenizer.eosTokenId].compactMap { $0 })
    }

    /// How transcripts with these tools become tokens.
    func format(tools: [H2OToolDefinition], options: H2OSession.Options) -> PromptFormat {
        var variables = options.templateContext
        if let thinking = options.thinking {
            variables[context.configuration.thinkingVariable] = .bool(thinking)
        }
        return PromptFormat(
            tokenizer: context.tokenizer, stops: stops, tools: tools, context: variables)
    }
}
