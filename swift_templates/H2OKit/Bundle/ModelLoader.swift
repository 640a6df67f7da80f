import Foundation
import H2OTokenizers
import MLX
import MLXLLM
import MLXLMCommon
import MLXNN

/// Loads a model from its folder.
package protocol H2OModelLoader: Sendable {
    func load(
        from folder: URL, tokenizer: any TokenizerLoader
    ) async throws -> sending ModelContext
}

/// Loads the models of mlx-swift-lm.
package struct LLMLoader: H2OModelLoader {
    package init() {}

    package func load(
        from folder: URL, tokenizer: any TokenizerLoader
    ) async throws -> sending ModelContext {
        try await LLMModelFactory.shared.load(from: folder, using: tokenizer)
    }
}

/// A LoRA or DoRA adapter.
package struct LoadedAdapter: Sendable {
    package let adapter: any ModelAdapter
    /// The digest of its files; nil for the adapter that `h2o-pack ios --adapter` bundled, because
    /// the model's digest includes its files.
    package let digest: String?

    package init(_ adapter: any ModelAdapter, digest: String?) {
        (self.adapter, self.digest) = (adapter, digest)
    }

    /// The name of a bundled adapter's file in the model's folder. The file is in the format of
    /// safetensors, but has another extension, because mlx-swift-lm loads every .safetensors file
    /// there as weights.
    package static let bundledWeights = "adapters.tensors"
    package static let weights = "adapters.safetensors"
    package static let configuration = "adapter_config.json"

    /// The adapter in a model's folder; nil if there is none.
    ///
    /// - Throws: an error of reading
    package static func bundled(in folder: URL) throws -> LoadedAdapter? {
        let file = folder.appending(path: bundledWeights)
        guard FileManager.default.fileExists(atPath: file.path) else { return nil }
        return try LoadedAdapter(file, folder.appending(path: configuration), digest: nil)
    }

    /// The adapter in a folder that `mlx_lm.lora` wrote.
    ///
    /// - Throws: `ModelAdapterError`, or an error of reading
    package init(in folder: URL) throws {
        let files = [Self.weights, Self.configuration].map { folder.appending(path: $0) }
        let digests = try files.map { try FileDigest.sha256(of: $0) }
        try self.init(files[0], files[1], digest: digests.joined())
    }

    private init(_ weights: URL, _ configuration: URL, digest: String?) throws {
        let settings = try RegularFile.data(configuration)
        let (arrays, _) = try H2OCacheFile.contents(of: weights)
        // Weights of the model itself could not be restored.
        let own = ["lora_a", "lora_b", "m"]
        for name in arrays.keys where !own.contains(where: { name.hasSuffix(".\($0)") }) {
            throw ModelAdapterError.unsupportedAdapterType(name)
        }
        let container = LoRAContainer(
            configuration: try JSONDecoder().decode(LoRAConfiguration.self, from: settings),
            parameters: ModuleParameters.unflattened(arrays))
        self.init(container, digest: digest)
    }
}

/// Loads the tokenizer of a model folder with swift-transformers, without a network.
package struct BundledTokenizerLoader: TokenizerLoader {
    package init() {}

    /// - Parameter directory: contains tokenizer.json and tokenizer_config.json, and
    ///   chat_template.jinja if the model has a chat template
    /// - Throws: an error of swift-transformers for an unknown kind, or an error of reading
    package func load(from directory: URL) async throws -> any MLXLMCommon.Tokenizer {
        BundledTokenizer(tokenizer: try AutoTokenizer.from(directory: directory))
    }
}

/// Adapts a tokenizer of swift-transformers to mlx-swift-lm's protocol.
struct BundledTokenizer: TemplatedTokenizer {
    let tokenizer: any H2OTokenizers.Tokenizer

    var bosToken: String? { tokenizer.bosToken }

    var eosToken: String? { tokenizer.eosToken }

    var unknownToken: String? { tokenizer.unknownToken }

    func encode(text: String, addSpecialTokens: Bool) -> [Int] {
        tokenizer.encode(text: text, addSpecialTokens: addSpecialTokens)
    }

    func decode(tokenIds: [Int], skipSpecialTokens: Bool) -> String {
        tokenizer.decode(tokens: tokenIds, skipSpecialTokens: skipSpecialTokens)
    }

    /// Returns nil for a token that is not in the vocabulary, for which swift-transformers returns
    /// the id of the unknown token.
    func convertTokenToId(_ token: String) -> Int? {
        guard let id = tokenizer.convertTokenToId(token),
            tokenizer.convertIdToToken(id)?.utf8.elementsEqual(token.utf8) == true
        else { return nil }
        return id
    }

    func convertIdToToken(_ id: Int) -> String? { tokenizer.convertIdToToken(id) }

    /// - Throws: `MLXLMCommon.TokenizerError.missingChatTemplate`, or the template's own error
    func applyChatTemplate(
        messages: [[String: any Sendable]],
        tools: [[String: any Sendable]]?,
        additionalContext: [String: any Sendable]?,
        addGenerationPrompt: Bool
    ) throws -> [Int] {
        guard tokenizer.hasChatTemplate else {
            throw MLXLMCommon.TokenizerError.missingChatTemplate
        }
        return try tokenizer.applyChatTemplate(
            inOrder: messages, tools: tools, additionalContext: additionalContext,
            addGenerationPrompt: addGenerationPrompt)
    }
}
