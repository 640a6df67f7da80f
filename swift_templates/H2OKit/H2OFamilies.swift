import MLXLMCommon

/// Which models of mlx-swift-lm cannot use H2O caches.
enum H2OFamilies {
    /// - Parameter caches: what the model itself makes
    static func reasonAgainst(_ model: any LanguageModel, caches: [any KVCache]) -> String? {
        let name = name(of: model)
        let isUniform = !caches.contains { $0 is RotatingKVCache }
        return name == "Exaone4Model" && isUniform ? nil : unfit[name]
    }

    static func name(of model: any LanguageModel) -> String { String(describing: type(of: model)) }
}
