import Foundation
import MLX
import MLXLMCommon

/// The caches of a system prompt that were computed when the package was made, by
/// `h2o-pack ios --system`.
package struct PreparedPrompt {
    /// In the model's folder, in the format of safetensors; mlx-swift-lm takes all files of
    /// that ending there for weights.
    package static let fileName = "system-prompt.tensors"

    /// With which every first turn begins.
    package let tokens: [Int]
    /// What the model has after these tokens: one cache for each that it makes.
    package let caches: [any KVCache]

    /// - Parameters:
    ///   - folder: of the model
    ///   - digest: of the model, by its manifest
    /// - Returns: nil if the folder has none
    /// - Throws: ``PreparedPromptProblem``
    package static func read(
        in folder: URL, digest: String?
    ) throws(PreparedPromptProblem) -> PreparedPrompt? {
        let file = folder.appending(path: fileName)
        guard FileManager.default.fileExists(atPath: file.path) else { return nil }
        do {
            let (caches, metadata) = try H2OCacheFile.load(from: file)
            guard let digest, metadata["model"] == digest else {
                throw PreparedPromptProblem.otherModel
            }
            let tokens = try decode([Int].self, metadata["tokens"])
            // What is left to compute belongs to this thread.
            try withError { eval(caches.flatMap(\.leaves).flatMap { $0.innerState() }) }
            return PreparedPrompt(tokens: tokens, caches: caches)
        } catch let problem as PreparedPromptProblem {
            throw problem
        } catch {
            throw PreparedPromptProblem.unreadable(String(describing: error))
        }
    }

    /// Whether a conversation can begin with copies of these caches.
    ///
    /// - Parameters:
    ///   - opening: the tokens of its first turn, or those before the user's message
    ///   - pinned: positions that its caches never evict
    ///   - made: empty caches that were made for it
    package func problem(
        with opening: [Int], pinned: Range<Int>, made: [any KVCache]
    ) -> PreparedPromptProblem? {
        guard pinned == 0 ..< tokens.count, opening.starts(with: tokens) else {
            return .otherPrompt
        }
        let (own, other) = (caches.map(\.leaves), made.map(\.leaves))
        let alike =
            own.map(\.count) == other.map(\.count)
            && zip(own.joined(), other.joined()).allSatisfy(isAlike)
        return alike ? nil : .otherCaches
    }

    /// Caches for a conversation to begin with.
    ///
    /// - Parameter made: those that were made for it; archives go to the folders that they name
    /// - Throws: ``H2OCacheError/archive(_:)`` where these cannot be used
    package func copies(for made: [any KVCache]) throws -> [any KVCache] {
        let copies = try caches.copied()
        for (copy, made) in zip(copies.flatMap(\.leaves), made.flatMap(\.leaves)) {
            guard let copy = copy as? any H2OCacheImplementation,
                let made = made as? any H2OCacheImplementation
            else { continue }
            try copy.layer.moveArchive(to: made.configuration)
        }
        return copies
    }

    /// Whether two caches keep the same rows in the same way.
    private func isAlike(_ cache: any KVCache, _ other: any KVCache) -> Bool {
        guard type(of: cache) == type(of: other), cache.maxSize == other.maxSize else {
            return false
        }
        guard let own = cache as? any H2OCacheImplementation,
            let other = other as? any H2OCacheImplementation
        else { return true }
        var format = other.layer.format
        format.dtype = own.layer.format.dtype
        let configuration = try? other.configuration.archiving(in: nil)
        return own.configuration == configuration && own.layer.format == format
    }
}

/// Why the caches of the bundled system prompt were not used. The prompt was read instead, and
/// the usage of the reply says so; no app has to catch it.
package enum PreparedPromptProblem: LocalizedError, Hashable, Codable, Sendable {
    /// Their file cannot be read, for this reason.
    case unreadable(String)
    /// Another model computed them.
    case otherModel
    /// The conversation's caches have other settings.
    case otherCaches
    /// The conversation has other instructions or tools, or the chat template renders them
    /// otherwise than when the package was made.
    case otherPrompt

    package var errorDescription: String? {
        let again = "Run h2o-pack ios --system again."
        switch self {
        case .unreadable(let reason):
            return "The caches of the system prompt cannot be read: \(reason). \(again)"
        case .otherModel:
            return "The caches of the system prompt are another model's. \(again)"
        case .otherCaches:
            return "The caches of the system prompt have other settings than this model's. "
                + "\(again)"
        case .otherPrompt:
            return "The conversation does not begin with the bundled system prompt. Give "
                + "BundledModel.systemPrompt as instructions, without tools, or run "
                + "h2o-pack ios --system again."
        }
    }
}
