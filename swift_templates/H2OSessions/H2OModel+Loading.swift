import Foundation
import H2OKit
import MLX
import MLXLMCommon

extension H2OModel {
    /// Loads a model from its folder. First checks that the folder is as it was bundled, that
    /// MLX can start, and that the model fits into the free memory. The CPU loads it, so that
    /// the app may be in the background meanwhile.
    ///
    /// - Parameters:
    ///   - folder: weights, tokenizer, configuration and `manifest.json`
    ///   - plan: the bytes that the model takes; MLX's limits are the sum of the plans of all
    ///     models in memory, and what their snapshots may take
    ///   - caches: what the model's layers get for each conversation
    ///   - archiveInFiles: whether what recall brings back waits in files, which are deleted
    ///     with the conversation, and not in memory
    ///   - snapshots: the bytes that those of one conversation may take
    ///   - verification: how thoroughly the folder is checked
    /// - Throws: `H2OLoadingError`, or an error of mlx-swift-lm
    public static func load(
        from folder: URL, plan: MemoryPlan, caches: H2OCaches, archiveInFiles: Bool = false,
        snapshots: H2OSnapshotLimits = H2OSnapshotLimits(),
        verification: ModelVerification = .sizes
    ) async throws -> H2OModel {
        try await load(
            from: folder, plan: plan, caches: caches, archiveInFiles: archiveInFiles,
            snapshots: snapshots, verification: verification, platform: H2OPlatform(),
            loader: LLMLoader())
    }

    /// The same with other system services, and another way to make the model.
    package static func load(
        from folder: URL, plan: MemoryPlan, caches: H2OCaches, archiveInFiles: Bool = false,
        snapshots: H2OSnapshotLimits = H2OSnapshotLimits(),
        verification: ModelVerification = .sizes, platform: H2OPlatform,
        loader: any H2OModelLoader
    ) async throws -> H2OModel {
        let manifest = try verification.check(folder)
        try platform.metal.check()
        try platform.memory.check(plan, of: manifest.model)
        let limits = MemoryLimits(plan, snapshots: snapshots.memory)
        // Upstream loads in one call, which no guard could interrupt: work on the GPU would end
        // the app in the background.
        return try await Device.withDefaultDevice(.cpu) {
            let context = try await loader.load(from: folder, tokenizer: BundledTokenizerLoader())
            try BundledAdapter.apply(in: folder, to: context.model)
            return H2OModel(
                context: context, manifest: manifest, caches: caches,
                archiveInFiles: archiveInFiles, snapshots: snapshots,
                facts: ModelFacts(in: folder), plan: plan, limits: limits, platform: platform,
                prepared: prepared(in: folder, manifest))
        }
    }

    /// The caches of the system prompt in a model's folder, which may have none.
    private static func prepared(
        in folder: URL, _ manifest: ModelManifest
    ) -> Result<PreparedPrompt, PreparedPromptProblem>? {
        do throws(PreparedPromptProblem) {
            return try PreparedPrompt.read(in: folder, digest: manifest.digest).map { .success($0) }
        } catch {
            return .failure(error)
        }
    }
}
