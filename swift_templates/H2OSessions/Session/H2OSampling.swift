import MLXLMCommon

/// How the next token is chosen. For a field that is nil, the session uses the value in the model's
/// `generation_config.json`, or else mlx-swift-lm's default.
public struct H2OSampling: Hashable, Codable, Sendable {
    /// The temperature: above 1 the probabilities become more equal, below 1 less equal; 0 always
    /// chooses the likeliest token.
    public var temperature: Float?
    /// Considers only the likeliest tokens that together have this probability; 1 considers all.
    public var topP: Float?
    /// Considers only this many of the likeliest tokens; 0 considers all.
    public var topK: Int?
    /// Considers only tokens whose probability is at least this share of the largest probability;
    /// 0 considers all.
    public var minP: Float?
    /// Lowers the logits of tokens that are among the newest tokens, by this factor; 1 changes
    /// nothing.
    public var repetitionPenalty: Float?
    /// The seed of the random numbers. With the same seed, the same reply is generated again.
    public var seed: UInt64?

    public init(
        temperature: Float? = nil, topP: Float? = nil, topK: Int? = nil, minP: Float? = nil,
        repetitionPenalty: Float? = nil, seed: UInt64? = nil
    ) {
        self.temperature = temperature
        self.topP = topP
        self.topK = topK
        self.minP = minP
        self.repetitionPenalty = repetitionPenalty
        self.seed = seed
    }

    /// Always chooses the likeliest token.
    public static let greedy = H2OSampling(temperature: 0)
}

extension H2OSampling {
    /// Checks the values, because mlx-swift-lm would accept an impossible value and choose wrong
    /// tokens.
    ///
    /// - Throws: ``H2OSessionError/invalidSampling(field:value:allowed:)``
    func check() throws {
        let most = Float.greatestFiniteMagnitude
        let fields: [(name: String, value: Float?, allowed: ClosedRange<Float>)] = [
            ("temperature", temperature, 0 ... most), ("topP", topP, 0 ... 1),
            ("topK", topK.map { Float($0) }, 0 ... most), ("minP", minP, 0 ... 1),
            ("repetitionPenalty", repetitionPenalty, 0 ... most),
        ]
        for field in fields {
            guard let value = field.value, !field.allowed.contains(value) else { continue }
            throw H2OSessionError.invalidSampling(
                field: field.name, value: value, allowed: field.allowed)
        }
    }

    /// mlx-swift-lm's parameters with these values, or with the model's defaults.
    func parameters(defaults: H2OSampling) -> GenerateParameters {
        var parameters = GenerateParameters()
        parameters.temperature = temperature ?? defaults.temperature ?? parameters.temperature
        parameters.topP = topP ?? defaults.topP ?? parameters.topP
        parameters.topK = topK ?? defaults.topK ?? parameters.topK
        parameters.minP = minP ?? defaults.minP ?? parameters.minP
        parameters.repetitionPenalty = repetitionPenalty ?? defaults.repetitionPenalty
        parameters.seed = seed ?? defaults.seed
        return parameters
    }
}
