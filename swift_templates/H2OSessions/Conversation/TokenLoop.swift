import H2OKit
import MLX
import MLXLMCommon

/// Generates tokens one after the other. It is one step ahead: while a token becomes text, the
/// GPU computes the next one.
///
/// It computes in ``init(reading:_:caches:sampler:processors:)`` and ``next()``; both belong
/// into steps of the background guard.
struct TokenLoop {
    private let model: any LanguageModel
    private let caches: [any KVCache]
    private let sampler: any LogitSampler
    private var processors: [any LogitProcessor]
    /// What the model wants back with the next token.
    private var state: LMOutput.State?
    /// `[1]`: chosen, but not read by the model.
    private var upcoming: MLXArray

    /// Reads the last tokens of a prompt at once.
    ///
    /// - Parameters:
    ///   - tokens: at least one
    ///   - processors: change the logits, in this order, before a token is chosen
    init(
        reading tokens: [Int], _ model: any LanguageModel, caches: [any KVCache],
        sampler: any LogitSampler, processors: [any LogitProcessor]
    ) {
        self.model = model
        self.caches = caches
        self.sampler = sampler
        self.processors = processors
        upcoming = MLXArray(tokens.map { Int32($0) }, [tokens.count])
        for index in self.processors.indices { self.processors[index].prompt(upcoming) }
        step()
    }

    /// The next token, which the caches have read when this returns or will have before
    /// anything else.
    mutating func next() -> Int {
        let token = upcoming
        step()
        return token.item(Int.self)
    }

    /// Why no token is to be trusted anymore.
    var failure: H2OSessionError? {
        processors.lazy.compactMap { ($0 as? SchemaProcessor)?.failure }.first
    }

    /// Reads the upcoming tokens and begins to compute the one after them.
    private mutating func step() {
        let input = LMInput.Text(tokens: upcoming.expandedDimensions(axis: 0))
        let output = model(input, cache: caches, state: state)
        state = output.state
        let length = output.logits.dim(1)
        var logits = output.logits[.ellipsis, (length - 1)..., 0...].squeezed(axis: 1)
        for processor in processors { logits = processor.process(logits: logits) }
        upcoming = sampler.sample(logits: logits)
        for index in processors.indices { processors[index].didSample(token: upcoming) }
        asyncEval([upcoming] + caches.flatMap { $0.innerState() })
    }
}
