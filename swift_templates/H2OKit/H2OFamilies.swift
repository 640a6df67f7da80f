import MLXLMCommon

/// Models of mlx-swift-lm 3.31.4 that would be wrong with rows missing from a cache, by
/// the name of their class, and why.
enum H2OFamilies {
    static let unfit = [
        "Exaone4Model":
            "it uses one mask for layers with a sliding window and layers without",
        "Gemma2Model":
            "it makes its mask for all tokens seen, and not for the rows that are kept",
        "Gemma3nTextModel":
            "its last layers read the keys of another layer's cache, which therefore must keep "
            + "them all",
        "NemotronLabsDiffusionModel":
            "it takes back the tokens of each block that it denoises",
        "Olmo3Model":
            "it makes plain caches for its layers with a sliding window too",
    ]

    /// - Parameter caches: what the model itself makes
    static func reasonAgainst(_ model: any LanguageModel, caches: [any KVCache]) -> String? {
        let name = name(of: model)
        let isUniform = !caches.contains { $0 is RotatingKVCache }
        return name == "Exaone4Model" && isUniform ? nil : unfit[name]
    }

    static func name(of model: any LanguageModel) -> String { String(describing: type(of: model)) }
}
