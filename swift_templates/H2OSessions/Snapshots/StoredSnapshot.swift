import Foundation
import H2OKit

/// A snapshot in a file.
final class StoredSnapshot {
    /// Has the file, which exists as long as this does; nil for a file of somebody else.
    private let folder: SnapshotFolder?
    private let file: URL
    private let archive: ArchiveFolder?
    let byteCount: Int

    init(
        _ snapshot: ConversationSnapshot, _ identity: ConversationIdentity,
        in folder: SnapshotFolder, name: String
    ) throws {
        self.folder = folder
        file = folder.url.appending(path: name, directoryHint: .notDirectory)
        archive = try snapshot.write(to: file, identity: identity)
        byteCount = Self.size(of: file)
    }

    init(_ file: URL, _ archive: ArchiveFolder?) {
        folder = nil
        self.file = file
        self.archive = archive
        byteCount = Self.size(of: file)
    }

    deinit {
        if folder != nil { try? FileManager.default.removeItem(at: file) }
    }

    private static func size(of file: URL) -> Int {
        (try? file.resourceValues(forKeys: [.fileSizeKey]))?.fileSize ?? 0
    }

    func head(
        _ identity: ConversationIdentity, in archives: ArchiveFolders
    ) throws -> ConversationHead {
        let folder = try archive.map { try archives.copy(of: $0.url) }
        let saved = try SnapshotFile.read(file, identity: identity, archive: folder?.url)
        return ConversationHead(state: saved.state, caches: saved.caches, archive: folder)
    }
}
