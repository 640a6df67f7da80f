import Foundation
import H2OKit
import MLX

extension Conversation {
    private static let fileName = "conversation.safetensors"
    private static let archivePrefix = "archive-"

    private enum Detail: String {
        case messages
        /// The name of the folder that has the archives in files.
        case archive
    }

    /// Writes the conversation to a folder, in place of an earlier state of it at once.
    ///
    /// - Throws: ``H2OSessionError/nothingToSave``, `H2OFileError` for a cache of a kind that is
    ///   not written, `CancellationError`, or an error of writing
    package func save(_ messages: [H2OMessage], to folder: URL) async throws {
        guard let head else { throw H2OSessionError.nothingToSave }
        let files = FileManager.default
        let attributes: [FileAttributeKey: Any] = [
            .posixPermissions: 0o700, .protectionKey: FileProtectionType.completeUnlessOpen,
        ]
        try files.createDirectory(
            at: folder, withIntermediateDirectories: true, attributes: attributes)
        try await loaded.platform.background.withGPU {
            var details = [Detail.messages.rawValue: json(messages)]
            if let archive = head.archive {
                let name = Self.archivePrefix + UUID().uuidString
                let own = folder.appending(path: name, directoryHint: .notDirectory)
                try files.createDirectory(
                    at: own, withIntermediateDirectories: true, attributes: attributes)
                try ArchiveFolders.copyArchives(of: archive.url, to: own)
                details[Detail.archive.rawValue] = name
            }
            try SnapshotFile.write(
                head.state, caches: head.caches, identity: loaded.identity, details: details,
                to: folder.appending(path: Self.fileName))
            try removeArchives(in: folder, except: details[Detail.archive.rawValue])
        }
    }

    /// Goes on from a folder that ``save(_:to:)`` wrote.
    ///
    /// - Returns: the messages
    /// - Throws: `H2OFileError` for a folder of another model, policy, template or version, and
    ///   for a torn file; `H2OStateError` and `MLXFast.H2OArchiveFailure` for damaged contents;
    ///   or an error of reading
    package func restore(from folder: URL) async throws -> [H2OMessage] {
        let file = folder.appending(path: Self.fileName)
        let messages = try await loaded.platform.background.withGPU {
            let details = try SnapshotFile.details(of: file, identity: loaded.identity)
            let own = try details[Detail.archive.rawValue].map {
                try loaded.platform.archives.copy(of: folder.appending(path: $0))
            }
            let saved = try SnapshotFile.read(file, identity: loaded.identity, archive: own?.url)
            let messages = try JSONDecoder().decode(
                [H2OMessage].self, from: Data((details[Detail.messages.rawValue] ?? "").utf8))
            goOn(from: ConversationHead(state: saved.state, caches: saved.caches, archive: own))
            return messages
        }
        await keepSnapshot()
        return messages
    }

    /// Those of earlier states, or of a process that ended while it wrote.
    private func removeArchives(in folder: URL, except name: String?) throws {
        let files = FileManager.default
        for other in try files.contentsOfDirectory(atPath: folder.path(percentEncoded: false))
        where other.hasPrefix(Self.archivePrefix) && other != name {
            try files.removeItem(at: folder.appending(path: other))
        }
    }
}
