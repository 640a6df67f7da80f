/// A model that is loaded at its first use and shared by all users, because two copies of the
/// weights would not fit into memory. It is released when nobody uses it.
package actor SharedModel {
    private weak var model: H2OModel?
    private var loading: Task<H2OModel, any Error>?

    package init() {}

    /// The loaded model; nil if nobody uses it.
    package var loaded: H2OModel? { model }

    /// Returns the loaded model, or loads it. Callers that arrive while it is loading wait for the
    /// same model. After an error, the next call tries again.
    ///
    /// - Throws: the error of `load`
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
