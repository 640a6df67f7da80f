import Foundation

extension MemoryGuard {
    /// The first model whose plan fits into the free memory; the first of all if the free
    /// memory is unknown.
    ///
    /// - Parameters:
    ///   - models: those to choose from, the best first
    ///   - plan: the bytes that a model takes
    /// - Throws: ``H2OLoadingError/noMemory(needs:free:)`` if none does
    package func first<Model: Identifiable>(
        of models: [Model], plan: (Model) -> MemoryPlan
    ) throws -> Model where Model.ID == String {
        let free = free ?? .max
        if let model = models.first(where: { plan($0).total <= free }) { return model }
        let needs = models.map { H2OLoadingError.Need(id: $0.id, plan: plan($0)) }
        throw H2OLoadingError.noMemory(needs: needs, free: free)
    }
}
