import Foundation

extension MemoryGuard {
    /// The first model whose plan fits into the free memory; the first of all if the free
    /// memory is unknown.
    ///
    /// - Parameters:
    ///   - models: those to choose from, the best first
    ///   - plan: the bytes that a model takes
    /// - Throws: ``NoModelFits`` if none does
    package func first<Model: Identifiable>(
        of models: [Model], plan: (Model) -> MemoryPlan
    ) throws -> Model where Model.ID == String {
        let free = free ?? .max
        if let model = models.first(where: { plan($0).total <= free }) { return model }
        throw NoModelFits(
            needs: models.map { NoModelFits.Need(id: $0.id, bytes: plan($0).total) }, free: free)
    }
}

/// None of several models fits into the free memory.
public struct NoModelFits: LocalizedError, Hashable, Sendable {
    /// What a model needs.
    public struct Need: Identifiable, Hashable, Sendable {
        /// The model's.
        public let id: String
        /// Its plan's sum.
        public let bytes: Int
    }

    /// In the order in which they were looked at.
    public let needs: [Need]
    /// Bytes.
    public let free: Int

    public var errorDescription: String? {
        "No model fits into the \(free) bytes that are free: "
            + needs.map { "\($0.id) needs \($0.bytes)" }.joined(separator: ", ")
            + ". Release other memory, check that the app has both memory entitlements, or "
            + "package a smaller model or a smaller --max-kv."
    }
}
