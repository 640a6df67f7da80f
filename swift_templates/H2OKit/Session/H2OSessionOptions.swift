import MLXLMCommon

/// What a session is made with.
public struct H2OSessionOptions: Sendable {
    /// The caches of the model's layers; the system prompt is pinned besides.
    public var caches: H2OCaches
    /// What the model is told before the first turn; its tokens are never evicted.
    public var system: String?
    /// Sampling, `maxTokens` of a reply and `prefillStepSize`, the tokens of the prompt
    /// that are read at a time. Their own settings of caches are not used.
    public var parameters: GenerateParameters

    public init(
        caches: H2OCaches, system: String? = nil,
        parameters: GenerateParameters = GenerateParameters(maxTokens: 512)
    ) {
        self.caches = caches
        self.system = system
        self.parameters = parameters
    }
}
