import MLXLMCommon

extension GenerateParameters {
    /// Makes `ChatSession`, `generate` and `TokenIterator` use H2O caches wherever they
    /// would make caches themselves.
    ///
    ///     var parameters = GenerateParameters(temperature: 0)
    ///     parameters.useH2O(H2OCaches(configuration: try H2OConfiguration(maxSize: 512)))
    ///     let session = ChatSession(container, generateParameters: parameters)
    ///
    /// They throw ``H2OCacheError`` when the model is not fit for it, or where another
    /// parameter bounds or quantizes the cache. Speculative decoding throws
    /// `SpeculationRefused`.
    public mutating func useH2O(_ caches: H2OCaches) {
        makeCaches(by: caches)
    }
}
