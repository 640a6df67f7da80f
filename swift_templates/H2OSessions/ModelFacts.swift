import Foundation

/// What a model's files say of how it is used.
package struct ModelFacts: Sendable {
    /// Of `generation_config.json`.
    package var sampling = H2OSampling()
    /// Tokens that a prompt may have, of `config.json`; nil if it does not say.
    package var positions: Int?

    package init(sampling: H2OSampling = H2OSampling(), positions: Int? = nil) {
        self.sampling = sampling
        self.positions = positions
    }

    /// - Parameter folder: the model's; a file that it lacks says nothing
    package init(in folder: URL) {
        if let said: GenerationFile = Self.read("generation_config.json", in: folder) {
            sampling = said.sampling
        }
        let said: ConfigurationFile? = Self.read("config.json", in: folder)
        positions = said?.maxPositionEmbeddings ?? said?.textConfig?.maxPositionEmbeddings
    }

    private static func read<File: Decodable>(_ name: String, in folder: URL) -> File? {
        let decoder = JSONDecoder()
        decoder.keyDecodingStrategy = .convertFromSnakeCase
        let data = try? Data(contentsOf: folder.appending(path: name))
        return data.flatMap { try? decoder.decode(File.self, from: $0) }
    }
}

private struct GenerationFile: Decodable {
    let doSample: Bool?
    let temperature: Float?
    let topP: Float?
    let topK: Int?
    let minP: Float?
    let repetitionPenalty: Float?

    var sampling: H2OSampling {
        H2OSampling(
            temperature: doSample == false ? 0 : temperature, topP: topP, topK: topK, minP: minP,
            repetitionPenalty: repetitionPenalty)
    }
}

private struct ConfigurationFile: Decodable {
    struct Text: Decodable {
        let maxPositionEmbeddings: Int?
    }

    let maxPositionEmbeddings: Int?
    let textConfig: Text?
}
