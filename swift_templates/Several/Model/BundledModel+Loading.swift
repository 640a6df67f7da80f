import H2OKit
import H2OSessions

extension BundledModel {
    /// The largest model that fits into the memory that is free now.
    ///
    /// - Parameter free: the bytes that are free, by default as the system says; others show
    ///   which model another device would take
    /// - Throws: `H2OLoadingError.noMemory`, which has the plan of each model
    public static func best(free: Int? = nil) throws -> BundledModel {
        let memory = free.map { bytes in MemoryGuard { bytes } } ?? .system
        return try memory.first(of: all, plan: \.memory)
    }

    /// The model of this package that is loaded, or else the largest that fits into the free
    /// memory.
    ///
    ///     let session = try await BundledModel.load().makeSession(instructions: "Be brief.")
    ///
    /// A saved conversation belongs to the model that it was held with: the error of another
    /// one names both.
    ///
    /// - Parameters:
    ///   - snapshots: the bytes that a conversation's snapshots may take
    ///   - checksEveryByte: whether the files' digests are compared, and not their sizes alone;
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

    /// Loads this model. Where it is loaded already, it is the same model, as it was asked for then.
    ///
    /// - Parameters:
    ///   - snapshots: the bytes that a conversation's snapshots may take
    ///   - checksEveryByte: whether the files' digests are compared, and not their sizes alone;
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
