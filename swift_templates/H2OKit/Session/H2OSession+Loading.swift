import Foundation
import MLXLLM
import MLXLMCommon

extension H2OSession {
    /// Loads a model from its folder, after checking that the folder is as it was bundled
    /// that MLX can start, and that the model fits into the memory that is free. It waits
    /// while the app is in the background; the loading itself is one step, which is not
    /// interrupted.
    ///
    /// - Parameters:
    ///   - folder: weights, tokenizer, configuration and `manifest.json`
    ///   - plan: the bytes that the model takes; MLX's limits are set to it
    ///   - options: see ``H2OSessionOptions``
    ///   - verification: how thoroughly the folder is checked
    ///   - platform: what is asked of the system
    ///   - loader: what makes the model; mlx-swift-lm if not said
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
