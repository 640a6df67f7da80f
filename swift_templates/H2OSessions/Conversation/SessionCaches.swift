import Foundation
import H2OKit
import MLXLMCommon

/// The caches of a conversation.
enum SessionCaches {
    /// One empty cache for each that the model makes; `pinned` is never evicted from it.
    ///
    /// - Parameter archive: the folder of what recall brings back; nil for memory
    /// - Throws: ``H2OSessionError/systemPromptTooLong(tokens:atMost:)``, `H2OCacheError`
    static func make(
        _ caches: H2OCaches, for model: any LanguageModel, pinned: Range<Int>,
        archive: URL? = nil
    ) throws -> [any KVCache] {
        do {
            var caches = caches
            caches.configuration = try caches.configuration.pinning(pinned).archiving(in: archive)
            return try caches.makeCaches(for: model)
        } catch H2OCacheError.invalidConfiguration(.nothingToEvict(let maxSize, let held, _), _) {
            throw H2OSessionError.systemPromptTooLong(
                tokens: pinned.count, atMost: pinned.count - (held - maxSize + 1))
        }
    }
}

extension H2OConfiguration {
    /// This configuration with one more pinned range.
    func pinning(_ range: Range<Int>) throws -> H2OConfiguration {
        guard !range.isEmpty else { return self }
        return try with(pinned: pinned + [range])
    }

    /// This configuration with its archive, if there is one, in a folder.
    func archiving(in folder: URL?) throws -> H2OConfiguration {
        guard let recall, let folder else { return self }
        let path = folder.path(percentEncoded: false)
        return try with(recall: recall.with(layers: recall.layers, store: path))
    }
}
