import Foundation
import H2OKit

/// A folder for a conversation's snapshots or for its archives, which exists as long as this does.
///
/// Both are the user's conversation: their files can be written but not opened while the device is
/// locked, are in no backup, and go with the conversation or, if the app ended before that, when
/// the next model is made.
package final class ConversationFolder: Sendable {
    package let url: URL
    /// Holds a lock that the system releases when the process ends.
    private let lock: Int32

    /// - Parameter root: has one folder per conversation and nothing else
    /// - Throws: an error of the file system
    package init(in root: URL) throws {
        url = root.appending(path: UUID().uuidString, directoryHint: .notDirectory)
        // Files in it have its protection.
        try FileManager.default.createPrivateDirectory(at: url)
        try root.excludeFromBackup()
        lock = Self.locked(url) ?? -1
        guard lock >= 0 else {
            throw CocoaError(.fileWriteUnknown, userInfo: [NSFilePathErrorKey: url.path])
        }
    }

    /// The same with the archives of another conversation, which may be open. Segments never
    /// change, so that both have the same files where the file system allows.
    package convenience init(in root: URL, archivesOf other: URL) throws {
        try self.init(in: root)
        try FileManager.default.copyArchives(of: other, to: url)
    }

    deinit {
        close(lock)
        try? FileManager.default.removeItem(at: url)
    }

    /// Deletes the folders that no process has open.
    package static func deleteStale(in root: URL) {
        let files = FileManager.default
        let names = (try? files.contentsOfDirectory(atPath: root.path(percentEncoded: false))) ?? []
        for name in names {
            let folder = root.appending(path: name, directoryHint: .notDirectory)
            guard let lock = locked(folder) else { continue }
            try? files.removeItem(at: folder)
            close(lock)
        }
    }

    /// The descriptor of a folder's lock; nil where another has it.
    private static func locked(_ folder: URL) -> Int32? {
        let file = folder.appending(path: "lock").path(percentEncoded: false)
        let lock = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        if lock >= 0, flock(lock, LOCK_EX | LOCK_NB) == 0 { return lock }
        if lock >= 0 { close(lock) }
        return nil
    }
}

extension FileManager {
    /// Copies the archives of all layers to a folder that has none.
    ///
    /// - Throws: an error of the file system
    func copyArchives(of other: URL, to folder: URL) throws {
        let layers = try contentsOfDirectory(atPath: other.path(percentEncoded: false))
        for layer in layers where layer.hasPrefix("layer-") {
            let (from, to) = (other.appending(path: layer), folder.appending(path: layer))
            try createPrivateDirectory(at: to)
            let names = try contentsOfDirectory(atPath: from.path(percentEncoded: false))
            for name in names where name.hasSuffix(".safetensors") {
                try linkOrCopyItem(at: from.appending(path: name), to: to.appending(path: name))
            }
            // Last, as it names no segment that is not written.
            if names.contains("manifest") {
                try copyItem(
                    at: from.appending(path: "manifest"), to: to.appending(path: "manifest"))
            }
        }
    }

    /// The same file under another name where the file system allows it, otherwise a copy. For
    /// files that never change.
    func linkOrCopyItem(at file: URL, to other: URL) throws {
        do {
            try linkItem(at: file, to: other)
        } catch {
            try copyItem(at: file, to: other)
        }
    }

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
