import Foundation
import MLX
import MLXLMCommon

/// The caches of a system prompt, which `h2o-pack ios --system` computed when it made the
/// package.
package struct PreparedPrompt {
    /// The name of their file in the model's folder. The file is in the format of safetensors,
    /// but has another extension, because mlx-swift-lm loads every .safetensors file there as
    /// weights.
    package static let fileName = "system-prompt.tensors"

    /// The tokens with which every conversation begins.
    package let tokens: [Int]
    /// The most tokens that were read at once.
    package let chunk: Int
    /// The model's caches after these tokens, in the order in which the model makes them.
    package let caches: [any KVCache]

    /// - Parameters:
    ///   - folder: the model's folder
    ///   - digest: the model's digest, from its manifest
    /// - Returns: nil if the folder has no prepared prompt
    /// - Throws: ``PreparedPromptProblem``
    package static func read(
        in folder: URL, digest: String
    ) throws(PreparedPromptProblem) -> PreparedPrompt? {
        let file = folder.appending(path: fileName)
        guard FileManager.default.fileExists(atPath: file.path) else { return nil }
        do {
            let (caches, metadata) = try H2OCacheFile.load(from: file)
            guard metadata["model"] == digest else { throw PreparedPromptProblem.otherModel }
            let tokens = try decode([Int].self, metadata["tokens"])
            // Evaluates the caches now, because only the thread that queued this work can do it.
            try withError { eval(caches.flatMap(\.leaves).flatMap { $0.innerState() }) }
            let chunk = try decode(Int.self, metadata["chunk"])
            return PreparedPrompt(tokens: tokens, chunk: chunk, caches: caches)
        } catch let problem as PreparedPromptProblem {
            throw problem
        } catch {
            throw PreparedPromptProblem.unreadable(String(describing: error))
        }
    }

    /// Returns why a conversation cannot begin with copies of these caches; nil if it can.
    ///
    /// - Parameters:
    ///   - opening: the tokens of the first turn, or those before the user's message
    ///   - pinned: positions that the conversation's caches never evict
    ///   - chunk: the most tokens that the conversation reads at once
    ///   - empty: the conversation's caches, before its first token
    package func problem(
        with opening: [Int], pinned: Range<Int>, chunk: Int, made empty: [any KVCache]
    ) -> PreparedPromptProblem? {
        guard pinned == 0 ..< tokens.count, opening.starts(with: tokens) else {
            return .otherPrompt
        }
        let (own, other) = (caches.map(\.leaves), empty.map(\.leaves))
        let alike =
            own.map(\.count) == other.map(\.count)
            && zip(own.joined(), other.joined()).allSatisfy(isAlike) && chunk == self.chunk
        return alike ? nil : .otherCaches
    }

    /// Copies the caches for a new conversation.
    ///
    /// - Parameter empty: the conversation's caches, which name the folders for archives
    /// - Throws: ``H2OCacheError/archive(_:)`` if such a folder cannot be used
    package func copies(for empty: [any KVCache]) throws -> [any KVCache] {
        let copies = try caches.copied()
        for (copy, target) in zip(copies.flatMap(\.leaves), empty.flatMap(\.leaves)) {
            guard let copy = copy as? H2OKVCache, let target = target as? H2OKVCache else {
                continue
            }
            try copy.moveArchive(to: target.configuration)
        }
        return copies
    }

    /// Whether two caches have the same policy and storage.
    private func isAlike(_ cache: any KVCache, _ other: any KVCache) -> Bool {
        guard type(of: cache) == type(of: other), cache.maxSize == other.maxSize else {
            return false
        }
        guard let own = cache as? H2OKVCache, let other = other as? H2OKVCache else { return true }
        let configuration = try? other.configuration.archiving(in: nil)
        return own.configuration == configuration && own.format == other.format
    }
}

/// Why the prepared caches of the system prompt were not used. The app gets no error: the session
/// reads the prompt as usual, and the usage of the reply contains the reason.
package enum PreparedPromptProblem: LocalizedError, Hashable, Codable, Sendable {
    /// The file of the caches cannot be read.
    case unreadable(String)
    /// Another model computed them.
    case otherModel
    /// The conversation's caches have other settings.
    case otherCaches
    /// The conversation has other instructions or tools, or the chat template renders them in
    /// another way than when the package was made.
    case otherPrompt

    package var errorDescription: String? {
        switch self {
        case .unreadable(let reason): H2OErrorText.preparedUnreadable(reason: reason)
        case .otherModel: H2OErrorText.preparedOtherModel()
        case .otherCaches: H2OErrorText.preparedOtherSettings()
        case .otherPrompt: H2OErrorText.preparedOtherPrompt()
        }
    }
}
