import Foundation
import H2OKit
import MLX

extension Conversation {
    private enum Detail: String {
        case messages
        /// The name of the folder that has the archives in files.
        case archive
    }

    /// Writes the conversation to a folder. What was saved there before stays as a snapshot of
    /// an earlier turn, within the bytes that the model's snapshots may take in files.
    ///
    /// - Throws: ``H2OSessionError/nothingToSave``, `H2OCacheError.notSavable`,
    ///   `CancellationError`, or an error of writing
    package func save(_ messages: [H2OMessage], to folder: URL) async throws {
        guard let head, hasMessages else { throw H2OSessionError.nothingToSave }
        let saved = SavedConversation(folder: folder)
        try saved.make()
        try await loaded.platform.background.withGPU {
            var details = [Detail.messages.rawValue: json(messages)]
            details[Detail.archive.rawValue] = try head.archive.map {
                try saved.addArchives(of: $0.url)
            }
            try saved.keepTurn(before: head.state.chain, loaded.identity)
            try SnapshotFile.write(
                head.state, caches: head.caches, identity: loaded.identity, details: details,
                to: saved.file)
            try saved.removeArchives(except: details[Detail.archive.rawValue])
            try saved.fit(loaded.snapshots.files)
        }
    }

    /// Goes on from a folder that ``save(_:to:)`` wrote, and can return to its earlier turns.
    ///
    /// - Returns: the messages
    /// - Throws: `H2OCacheError` for a folder of another model, policy, template or version, and
    ///   for damaged files; or an error of reading
    package func restore(from folder: URL) async throws -> [H2OMessage] {
        let saved = SavedConversation(folder: folder)
        let messages = try await loaded.platform.background.withGPU {
            let identity = loaded.identity
            let details = try SnapshotFile.details(of: saved.file, identity: identity)
            let own = try details[Detail.archive.rawValue].map {
                try loaded.platform.archives.copy(of: saved.archives($0))
            }
            let newest = try SnapshotFile.read(saved.file, identity: identity, archive: own?.url)
            let messages = try JSONDecoder().decode(
                [H2OMessage].self, from: Data((details[Detail.messages.rawValue] ?? "").utf8))
            goOn(from: ConversationHead(state: newest.state, caches: newest.caches, archive: own))
            snapshots.add(savedIn: try saved.turns, archive: own)
            return messages
        }
        await keepSnapshot()
        return messages
    }
}
