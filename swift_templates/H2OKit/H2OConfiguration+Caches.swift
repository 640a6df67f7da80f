extension H2OConfiguration {
    /// One empty cache for each layer, for `generate(input:cache:parameters:context:)`.
    ///
    /// - Parameter layers: the model's attention layers
    public func makeCaches(layers: Int) -> [H2OKVCache] {
        (0 ..< layers).map { _ in H2OKVCache(configuration: self) }
    }
}
