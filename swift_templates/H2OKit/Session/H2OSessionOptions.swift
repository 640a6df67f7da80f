import MLXLMCommon

/// The settings of a session.
public struct H2OSessionOptions: Sendable {
    /// The caches of the model's layers. The system prompt is pinned in addition.
    public var caches: H2OCaches
    /// The system prompt; its tokens are never evicted.
    public var system: String?
    /// Sampling, `maxTokens` of a reply, and `promptChunk`, the number of prompt tokens that
    /// are read at a time. The cache settings of these parameters are not used.
    public var parameters: GenerateParameters
    /// Whether what recall brings back waits in files, which are deleted with the conversation,
    /// and not in memory. Without recall nothing is kept.
    public var archiveInFiles: Bool

    public init(
        caches: H2OCaches, system: String? = nil,
        parameters: GenerateParameters = GenerateParameters(maxTokens: 512),
        archiveInFiles: Bool = false
    ) {
        self.caches = caches
        self.system = system
        self.parameters = parameters
        self.archiveInFiles = archiveInFiles
    }
}
