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
        try H2OCacheError.ofCore {
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

extension ArchiveFolders {
    /// A new folder with the archives of another: segments never change, so that both have the
    /// same files where the file system allows. The other may be open.
    ///
    /// - Throws: an error of the file system
    package func copy(of other: URL) throws -> ArchiveFolder {
        let folder = try make()
        try Self.copyArchives(of: other, to: folder.url)
        return folder
    }

    /// Copies all layers' archives to a folder that has none.
    ///
    /// - Throws: an error of the file system
    static func copyArchives(of other: URL, to folder: URL) throws {
        let files = FileManager.default
        for layer in try files.contentsOfDirectory(atPath: other.path(percentEncoded: false)) {
            let (from, to) = (other.appending(path: layer), folder.appending(path: layer))
            try files.createDirectory(
                at: to, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
            let names = try files.contentsOfDirectory(atPath: from.path(percentEncoded: false))
            for name in names where name.hasSuffix(".safetensors") {
                try files.linkOrCopyItem(
                    at: from.appending(path: name), to: to.appending(path: name))
            }
            // Last, as it names no segment that is not written.
            if names.contains("manifest") {
                try files.copyItem(
                    at: from.appending(path: "manifest"), to: to.appending(path: "manifest"))
            }
        }
    }
}

extension FileManager {
    /// The same file under another name where the file system allows it, otherwise a copy. For
    /// files that never change.
    func linkOrCopyItem(at file: URL, to other: URL) throws {
        do {
            try linkItem(at: file, to: other)
        } catch {
            try copyItem(at: file, to: other)
        }
    }
}

extension FileManager {
    /// Makes a folder for what belongs to a user's conversation, if it is not there. Others do
    /// not read it, and its files can be written but not opened while the device is locked.
    ///
    /// - Throws: an error of the file system
    package func createPrivateDirectory(at url: URL) throws {
        try createDirectory(
            at: url, withIntermediateDirectories: true,
            attributes: [
                .posixPermissions: 0o700, .protectionKey: FileProtectionType.completeUnlessOpen,
            ])
    }
}
