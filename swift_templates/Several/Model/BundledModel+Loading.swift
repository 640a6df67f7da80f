import H2OKit
import H2OSessions

extension BundledModel {
    /// Returns the largest model that fits into the free memory, or the largest of all if the
    /// system does not report the free memory.
    ///
    /// - Parameter free: the free bytes; nil for the bytes that the system reports. Other values
    ///   show which model another device would load
    /// - Throws: `H2OLoadingError.noMemory` with the plan of each model
    public static func best(free: Int? = nil) throws -> BundledModel {
        let free = free ?? MemoryGuard.system.free ?? .max
        if let model = all.first(where: { $0.memory.total <= free }) { return model }
        let needs = Dictionary(all.map { ($0.id, $0.memory) }, uniquingKeysWith: { one, _ in one })
        throw H2OLoadingError.noMemory(needs: needs, free: free)
    }

    /// Returns the loaded model of this package, or else loads the largest model that fits into the
    /// free memory.
    ///
    ///     let session = try await BundledModel.load().makeSession(instructions: "Be brief.")
    ///
    /// A saved conversation belongs to its model. Restoring it with another model throws an error
    /// that names both models.
    ///
    /// - Parameters:
    ///   - snapshots: the bytes that a conversation's snapshots may take
    ///   - checksEveryByte: whether to compare the files' digests and not only their sizes;
    ///     it takes seconds per gigabyte
    /// - Throws: `H2OLoadingError`, or an error of mlx-swift-lm
    public static func load(
        snapshots: H2OSnapshotLimits = H2OSnapshotLimits(),
        checksEveryByte: Bool = false
    ) async throws -> H2OModel {
        for model in all {
            if let loaded = await model.shared.loaded { return loaded }
        }
        return try await best().load(snapshots: snapshots, checksEveryByte: checksEveryByte)
    }

    /// Loads this model. If it is loaded already, returns it with the parameters of the first
    /// call.
    ///
    /// - Parameters:
    ///   - snapshots: the bytes that a conversation's snapshots may take
    ///   - checksEveryByte: whether to compare the files' digests and not only their sizes;
    ///     it takes seconds per gigabyte
    /// - Throws: `H2OLoadingError`, or an error of mlx-swift-lm
    public func load(
        snapshots: H2OSnapshotLimits = H2OSnapshotLimits(),
        checksEveryByte: Bool = false
    ) async throws -> H2OModel {
        try await shared.model {
            try await H2OModel.load(
                from: folder(), plan: memory, caches: caches(), archiveInFiles: archiveInFiles,
                snapshots: snapshots, checksEveryByte: checksEveryByte)
        }
    }
}
