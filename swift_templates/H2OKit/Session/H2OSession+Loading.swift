import Foundation
import MLXLLM
import MLXLMCommon

extension H2OSession {
    /// Loads a model from its folder. First checks that the folder is as it was bundled, that
    /// MLX can start, and that the model fits into the free memory. Waits while the app is in
    /// the background; loading itself is one step and cannot be interrupted.
    ///
    /// - Parameters:
    ///   - folder: weights, tokenizer, configuration and `manifest.json`
    ///   - plan: the bytes that the model takes; sets MLX's limits
    ///   - options: see ``H2OSessionOptions``
    ///   - verification: how thoroughly the folder is checked
    ///   - platform: the system services to use
    ///   - loader: makes the model; by default mlx-swift-lm
    /// - Throws: ``ModelBundleError``, ``MetalError``, ``MemoryShortage``,
    ///   `CancellationError`, or an error of the loader
    public static func load(
        from folder: URL, plan: MemoryPlan, options: H2OSessionOptions,
        verification: ModelVerification = .sizes, platform: H2OPlatform = H2OPlatform(),
        loader: any H2OModelLoader = LLMLoader()
    ) async throws -> H2OSession {
        try verification.check(folder)
        try platform.metal.check()
        try platform.memory.check(plan)
        plan.apply()
        try await platform.background.begin()
        defer { platform.background.end() }
        let context = try await loader.load(from: folder, tokenizer: BundledTokenizerLoader())
        return H2OSession(context: context, options: options, plan: plan, platform: platform)
    }
}

/// Makes a model from its folder.
public protocol H2OModelLoader: Sendable {
    func load(
        from folder: URL, tokenizer: any TokenizerLoader
    ) async throws -> sending ModelContext
}

/// Loads the models of mlx-swift-lm.
public struct LLMLoader: H2OModelLoader {
    public init() {}

    public func load(
        from folder: URL, tokenizer: any TokenizerLoader
    ) async throws -> sending ModelContext {
        try await LLMModelFactory.shared.load(from: folder, using: tokenizer)
    }
}
