import Foundation
import H2OKit
import H2OSessions
import MLXLMCommon

/// One of the models that this package was made for, and its cache.
///
///     let model = try await BundledModel.load()  // the largest that fits
///     let other = try await BundledModel.all[1].load()  // the second largest
public struct BundledModel: Identifiable, Sendable {
    /// The model's hub id, short name or folder name.
    public let id: String

    /// The name of the model's folder in the package's `Model` folder.
    public let folderName: String

    /// The bytes that the model needs on this device.
    public let memory: MemoryPlan

    /// Whether sessions keep the archive of recall in files instead of in memory.
    public let archiveInFiles: Bool

    /// The loaded model that all users share, including Apple's `LanguageModelSession`.
    let shared = SharedModel()

    let makeCaches: @Sendable () throws -> H2OCaches

    /// The policy, which decides the tokens that the caches keep.
    ///
    /// - Throws: `H2OCacheError` if the values in `all` were edited and contradict each other
    public func configuration() throws -> H2OConfiguration {
        try caches().configuration
    }

    /// The settings of the caches: the policy of `configuration()`, and the storage of rows. With
    /// `GenerateParameters/useH2O(_:)`, ChatSession, generate and TokenIterator use these caches.
    public func caches() throws -> H2OCaches {
        try makeCaches()
    }

    /// Loads the tokenizer of a model's folder, for mlx-swift-lm's `LLMModelFactory`.
    public static let tokenizerLoader: any TokenizerLoader = BundledTokenizerLoader()

    /// The folder with the weights, the tokenizer and the configuration.
    public func folder() throws -> URL {
        try ModelFolder.find(folderName)
    }
}
