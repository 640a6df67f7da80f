import MLXLMCommon

/// Which models of mlx-swift-lm cannot use H2O caches.
enum H2OFamilies {
    /// - Parameter caches: what the model itself makes
    static func reasonAgainst(_ model: any LanguageModel, caches: [any KVCache]) -> String? {
        let name = name(of: model)
        let slides = caches.contains { $0 is RotatingKVCache }
        switch name {
        case "Exaone4Model" where !slides: return nil
        case "Olmo3Model" where slides: return nil  // from main of 2026-08-22 on
        default: return unfit[name]
        }
    }

    static func name(of model: any LanguageModel) -> String { String(describing: type(of: model)) }
}
