import Foundation
import H2OKit

/// The folder of a saved conversation: the newest state in a file, those of earlier turns in
/// others, and archives in a folder.
struct SavedConversation {
    private static let archivePrefix = "archive-"
    private static let turnPrefix = "turn-"
    private static let fileEnd = ".safetensors"

    let folder: URL

    /// The newest state.
    var file: URL { folder.appending(path: "conversation\(Self.fileEnd)") }

    /// Makes the folder if it is not there.
    func make() throws {
        try FileManager.default.createPrivateDirectory(at: folder)
    }

    /// States of earlier turns, oldest first.
    var turns: [URL] {
        get throws {
            try names(Self.turnPrefix).filter { $0.hasSuffix(Self.fileEnd) }.sorted()
                .map { folder.appending(path: $0) }
        }
    }

    /// Keeps the newest state as that of an earlier turn, unless it is of the same messages as
    /// the one that will take its place.
    func keepTurn(before chain: TranscriptChain.Head, _ identity: ConversationIdentity) throws {
        let kept = { (file: URL) in try? SnapshotFile.state(of: file, identity: identity).chain }
        guard let current = kept(file), current != chain, let turns = try? turns,
            turns.last.flatMap(kept) != current
        else { return }
        let last = turns.last.map { moment(of: $0) } ?? 0
        let digits = String(last + 1)
        let name = Self.turnPrefix + String(repeating: "0", count: 9 - digits.count) + digits
        try FileManager.default.linkOrCopyItem(
            at: file, to: folder.appending(path: name + Self.fileEnd))
    }

    /// Thins earlier turns out until they take at most so many bytes.
    func fit(_ bytes: Int) throws {
        var left = try turns
        let size = { (file: URL) in
            try file.resourceValues(forKeys: [.fileSizeKey]).fileSize ?? 0
        }
        while try left.map(size).reduce(0, +) > bytes {
            let moments = left.map { moment(of: $0) }
            let index = left.count == 1 ? 0 : SnapshotThinning.victim(of: moments)
            try FileManager.default.removeItem(at: left.remove(at: index))
        }
    }

    /// Copies the archives of a conversation.
    ///
    /// - Returns: the name of their folder
    func addArchives(of other: URL) throws -> String {
        let name = Self.archivePrefix + UUID().uuidString
        let own = archives(name)
        try FileManager.default.createPrivateDirectory(at: own)
        try ArchiveFolders.copyArchives(of: other, to: own)
        return name
    }

    func archives(_ name: String) -> URL {
        folder.appending(path: name, directoryHint: .notDirectory)
    }

    /// Those of earlier states, or of a process that ended while it wrote.
    func removeArchives(except name: String?) throws {
        for other in try names(Self.archivePrefix) where other != name {
            try FileManager.default.removeItem(at: archives(other))
        }
    }

    private func names(_ prefix: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: folder.path(percentEncoded: false))
            .filter { $0.hasPrefix(prefix) }
    }

    private func moment(of turn: URL) -> Int {
        let name = turn.deletingPathExtension().lastPathComponent
        return Int(name.dropFirst(Self.turnPrefix.count)) ?? 0
    }
}
