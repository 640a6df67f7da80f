import Foundation
import MLX
import MLXLMCommon
import MLXNN

/// The LoRA adapter that a model was bundled with, by `h2o-pack ios --adapter`.
package enum BundledAdapter {
    /// In the model's folder, in the format of safetensors; mlx-swift-lm takes all files of
    /// that ending there for weights.
    package static let weights = "adapters.tensors"
    package static let configuration = "adapter_config.json"

    /// Adapts a model that was just loaded, if its folder has an adapter.
    ///
    /// - Throws: `ModelAdapterError` for a model whose layers mlx-swift-lm cannot adapt, or an
    ///   error of reading
    package static func apply(in folder: URL, to model: any LanguageModel) throws {
        let file = folder.appending(path: weights)
        guard FileManager.default.fileExists(atPath: file.path) else { return }
        let settings = try Data(contentsOf: folder.appending(path: configuration))
        let (arrays, _) = try H2OCacheFile.contents(of: file)
        let adapter = LoRAContainer(
            configuration: try JSONDecoder().decode(LoRAConfiguration.self, from: settings),
            parameters: ModuleParameters.unflattened(arrays))
        try withError { try adapter.load(into: model) }
    }
}
