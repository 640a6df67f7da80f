/// A model that is loaded when it is first asked for, and once for all who use it at the same time:
/// two copies of the weights would not fit. When nobody has it any more, it is released.
package actor SharedModel {
    private weak var model: H2OModel?
    private var loading: Task<H2OModel, any Error>?

    package init() {}

    /// The model, if somebody has it.
    package var loaded: H2OModel? { model }

    /// The model that somebody has, or else what `load` gives. Who asks while it is loaded waits
    /// for the same. After an error the next call tries again.
    ///
    /// - Throws: what `load` throws
    package func model(
        load: @escaping @Sendable () async throws -> H2OModel
    ) async throws -> H2OModel {
        if let model { return model }
        let task = loading ?? Task { try await load() }
        loading = task
        defer { if loading == task { loading = nil } }
        let loaded = try await task.value
        model = loaded
        return loaded
    }
}
