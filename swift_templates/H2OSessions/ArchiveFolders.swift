import Foundation
import H2OKit
import MLX

/// Where sessions keep archives in files: a folder with one folder per conversation.
///
/// An archive is the user's conversation. Its files can be written but not opened while the
/// device is locked, are in no backup, and are deleted with the conversation, or, if the app
/// ended before that, when the next session is made.
package struct ArchiveFolders: Sendable {
    /// Holds nothing else.
    package let root: URL

    package init(root: URL) {
        self.root = root
    }

    /// In the app's own folder for files that it needs to work.
    package static let system: ArchiveFolders = {
        let files = FileManager.default
        let own = files.urls(for: .applicationSupportDirectory, in: .userDomainMask).first
        return ArchiveFolders(
            root: (own ?? files.temporaryDirectory).appending(
                path: "h2o-archives", directoryHint: .isDirectory))
    }()

    /// A new folder, deleted when it is released.
    ///
    /// - Throws: an error of the file system
    package func make() throws -> ArchiveFolder {
        let url = root.appending(path: UUID().uuidString, directoryHint: .notDirectory)
        // Files in it have its protection.
        try FileManager.default.createPrivateDirectory(at: url)
        try root.excludeFromBackup()
        return ArchiveFolder(url: url)
    }

    /// Deletes the folders that no session has open, of this process or another.
    ///
    /// - Throws: `H2OCacheError.archive`
    package func deleteStale() throws {
        try H2OCacheError.withArchives {
            try MLXFast.h2oDeleteStaleArchives(in: root.path(percentEncoded: false))
        }
    }
}

/// A conversation's folder, which exists as long as this does.
package final class ArchiveFolder: Sendable {
    package let url: URL

    init(url: URL) {
        self.url = url
    }

    deinit {
        // Not by the core: it keeps folders that a cache still has open.
        try? FileManager.default.removeItem(at: url)
    }
}
