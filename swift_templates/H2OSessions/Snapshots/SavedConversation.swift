import Foundation
import H2OKit
import MLX

extension Conversation {
    private enum Detail: String {
        case messages
        /// The earlier states to which the conversation can return.
        case points
        /// The name of the folder that has the archives in files.
        case archive
    }

    /// Writes the conversation to a folder. The state that was saved there before stays as a
    /// snapshot of an earlier turn, if the model's limit for snapshots in files allows it.
    ///
    /// - Throws: ``H2OSessionError/nothingToSave``, `H2OCacheError.notSavable`,
    ///   `CancellationError`, or an error of writing
    package func save(_ messages: [H2OMessage], to folder: URL) async throws {
        guard hasMessages else { throw H2OSessionError.nothingToSave }
        try await makeCaches()
        guard let head, let state else { throw H2OSessionError.nothingToSave }
        let saved = SavedConversation(folder: folder)
        try FileManager.default.createPrivateDirectory(at: folder)
        var details = [
            Detail.messages.rawValue: json(messages),
            Detail.points.rawValue: json(snapshots.points(in: state)),
        ]
        let archive = head.archive.map { (name: SavedConversation.newArchive(), own: $0.url) }
        details[Detail.archive.rawValue] = archive?.name
        let computed = try await onGPU {
            try SnapshotFile.computed(head, identity: loaded.identity, details: details)
        }
        // Writes outside of the guard, so that leaving the app does not wait for the medium.
        try await BackgroundGuard.finishing {
            try FileManager.default.whileLocked(folder) {
                try saved.add(computed, before: state.chain, loaded.identity, archive)
                try saved.removeArchives(except: archive?.name)
                try saved.fit(loaded.snapshots.files)
            }
        }
    }

    /// Restores the state that ``save(_:to:)`` wrote to a folder. The conversation can then return
    /// to its earlier turns.
    ///
    /// - Returns: the messages
    /// - Throws: `H2OCacheError` for a folder of another model, policy, template or version, and
    ///   for damaged files; or an error of reading
    package func restore(from folder: URL) async throws -> [H2OMessage] {
        let saved = SavedConversation(folder: folder)
        let (file, own, head) = try await read(saved)
        let messages = try JSONDecoder().decode(
            [H2OMessage].self, from: Data((file.details[Detail.messages.rawValue] ?? "").utf8))
        (state, held) = (head.state, head)
        for point in try file.points(named: Detail.points.rawValue) {
            snapshots.add(head.state.at(point))
        }
        snapshots.add(savedIn: try saved.turns, archive: own)
        await keepSnapshot()
        return messages
    }

    private typealias Contents = (
        file: SnapshotFile, archive: ConversationFolder?, head: ConversationHead
    )

    /// Reads the newest state and its caches. If another process saves meanwhile, reads again.
    private func read(_ saved: SavedConversation) async throws -> Contents {
        while true {
            let (file, archive) = try FileManager.default.whileLocked(saved.folder) {
                try newest(saved)
            }
            do {
                return (file, archive, try await onGPU { try file.head(archive: archive) })
            } catch {
                guard try DurableFile.digest(of: saved.file) != file.digest else { throw error }
            }
        }
    }

    /// The file of the newest state, and a copy of its archives.
    private func newest(
        _ saved: SavedConversation
    ) throws -> (file: SnapshotFile, archive: ConversationFolder?) {
        let file = try SnapshotFile(saved.file, identity: loaded.identity)
        let archive = try file.details[Detail.archive.rawValue].map { name in
            guard let archives = saved.archives(named: name) else {
                throw H2OCacheError.damaged(
                    reason: "its archive is not in the conversation's folder", file: saved.file)
            }
            return try ConversationFolder(in: loaded.platform.archives, archivesOf: archives)
        }
        return (file, archive)
    }
}

extension SnapshotFile {
    /// The points in the file's strings.
    ///
    /// - Throws: `H2OCacheError.damaged` if the conversation cannot have been there
    fileprivate func points(named name: String) throws -> [ConversationPoint] {
        let points = try JSONDecoder().decode(
            [ConversationPoint].self, from: Data((details[name] ?? "[]").utf8))
        if let problem = points.lazy.compactMap({ problem(of: $0) }).first {
            throw H2OCacheError.damaged(reason: problem, file: url)
        }
        return points
    }
}

/// The folder of a saved conversation. It contains a file with the newest state, files with the
/// states of earlier turns, and a folder with archives.
struct SavedConversation {
    private static let archivePrefix = "archive-"

    let folder: URL

    /// The newest state.
    var file: URL { folder.appending(path: "conversation.safetensors") }

    /// States of earlier turns, oldest first.
    var turns: [URL] {
        get throws {
            try names("turn-").map { folder.appending(path: $0) }
                .filter { moment(of: $0) != nil && !FileManager.default.isFolder($0) }
                .sorted { $0.path < $1.path }
        }
    }

    /// Replaces the newest state, which stays as the state of an earlier turn. If that fails, the
    /// folder is as it was, except for the earlier turn.
    ///
    /// - Parameters:
    ///   - chain: the messages of the state that is added
    ///   - archive: the name of the folder for the state's archives, and the archives; nil if they
    ///     are in memory
    func add(
        _ computed: SnapshotFile.Computed, before chain: TranscriptChain.Head,
        _ identity: ConversationIdentity, _ archive: (name: String, own: URL)?
    ) throws {
        for name in try names(file.deletingPathExtension().lastPathComponent)
        where DurableFile.isUnfinished(name, of: file) {
            try FileManager.default.removeItem(at: folder.appending(path: name))
        }
        do {
            if let archive { try addArchives(of: archive.own, named: archive.name) }
            try keepTurn(before: chain, identity)
            try computed.write(to: file)
        } catch {
            if let archive { try? FileManager.default.removeItem(at: archives(archive.name)) }
            throw error
        }
    }

    /// Keeps the newest state as the state of an earlier turn, unless the state that replaces it
    /// has the same messages.
    private func keepTurn(before chain: TranscriptChain.Head, _ identity: ConversationIdentity)
        throws
    {
        let chainOf = { (file: URL) in
            try? SnapshotFile(file, identity: identity, checksEveryByte: false).state.chain
        }
        guard let current = chainOf(file), current != chain, let turns = try? turns,
            turns.last.flatMap(chainOf) != current
        else { return }
        let turn = folder.appending(
            path: String(
                format: "turn-%09ld.safetensors", (turns.last.flatMap(moment) ?? 0) + 1))
        // After a billion turns, no name is left.
        guard moment(of: turn) != nil else { return }
        let new = DurableFile.unfinished(file)
        do {
            try FileManager.default.linkOrCopyItem(at: file, to: new)
            try FileManager.default.moveItem(at: new, to: turn)
        } catch {
            try? FileManager.default.removeItem(at: new)
            throw error
        }
    }

    /// Deletes states of earlier turns until the remaining ones take at most this many bytes.
    func fit(_ bytes: Int) throws {
        var states = try turns
        let size = { (file: URL) in
            try file.resourceValues(forKeys: [.fileSizeKey]).fileSize ?? 0
        }
        while try states.map(size).reduce(0, +) > bytes {
            let index = SnapshotThinning.victim(of: states.map { moment(of: $0) ?? 0 })
            try FileManager.default.removeItem(at: states.remove(at: index))
        }
    }

    /// The name of a new folder for archives.
    static func newArchive() -> String { archivePrefix + UUID().uuidString }

    /// Copies the archives of a conversation to a folder with this name.
    private func addArchives(of other: URL, named name: String) throws {
        try FileManager.default.createPrivateDirectory(at: archives(name))
        try FileManager.default.copyArchives(of: other, to: archives(name))
    }

    func archives(_ name: String) -> URL {
        folder.appending(path: name, directoryHint: .notDirectory)
    }

    /// The folder of archives with a name from a file; nil if it is not in this conversation's
    /// folder.
    func archives(named name: String) -> URL? {
        guard name.hasPrefix(Self.archivePrefix),
            UUID(uuidString: String(name.dropFirst(Self.archivePrefix.count))) != nil
        else { return nil }
        return FileManager.default.isFolder(archives(name)) ? archives(name) : nil
    }

    /// Removes archives of earlier states, or of a process that ended while it wrote.
    func removeArchives(except name: String?) throws {
        for archive in try names(Self.archivePrefix) where archive != name {
            guard let folder = archives(named: archive) else { continue }  // it is not ours
            try FileManager.default.removeItem(at: folder)
        }
    }

    private func names(_ prefix: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: folder.path(percentEncoded: false))
            .filter { $0.hasPrefix(prefix) }
    }

    /// The number in the name of a turn's file; nil for another file.
    private func moment(of turn: URL) -> Int? {
        let match = turn.lastPathComponent.wholeMatch(of: /turn-([0-9]{9})\.safetensors/)
        return match.flatMap { Int($0.1) }
    }
}

/// All values on which a conversation's caches depend, besides its messages. A saved conversation
/// continues only if all of them are the same.
package struct ConversationIdentity: Codable, Hashable, Sendable {
    /// The model's name, for error messages.
    package let model: String
    /// The digest of the model's files.
    package let modelDigest: String
    /// The policy and storage of the caches, without the conversation's pins and archive.
    package let caches: H2OCaches
    /// The digest of the tokens to which the chat template renders a made-up exchange.
    package let templateDigest: String
    /// The number of tokens in the vocabulary; nil if the model's files do not contain it.
    package let vocabulary: Int?

    /// - Throws: `H2OCacheError` with the name of the part that differs
    func check(_ saved: ConversationIdentity, in file: URL) throws {
        guard saved.modelDigest == modelDigest else {
            throw H2OCacheError.otherModel(
                found: saved.model, expected: model, file: file)
        }
        guard saved.caches == caches else {
            throw H2OCacheError.otherSettings(
                found: json(saved.caches), expected: json(caches), file: file)
        }
        guard saved.templateDigest == templateDigest else {
            throw H2OCacheError.otherTemplate(file: file)
        }
    }
}
