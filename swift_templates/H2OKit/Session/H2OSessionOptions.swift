import MLXLMCommon

/// What a session is made with.
public struct H2OSessionOptions: Sendable {
    /// Which tokens the caches keep; the system prompt is pinned besides.
    public var configuration: H2OConfiguration
    /// The model's attention layers.
    public var layers: Int
    /// What the model is told before the first turn; its tokens are never evicted.
    public var system: String?
    /// Sampling, `maxTokens` of a reply and `prefillStepSize`, the tokens of the prompt
    /// that are read at a time. Their own settings of caches are not used.
    public var parameters: GenerateParameters

    public init(
        configuration: H2OConfiguration, layers: Int, system: String? = nil,
        parameters: GenerateParameters = GenerateParameters(maxTokens: 512)
    ) {
        self.configuration = configuration
        self.layers = layers
        self.system = system
        self.parameters = parameters
    }
}
