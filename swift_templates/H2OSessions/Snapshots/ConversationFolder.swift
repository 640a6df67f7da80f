import Foundation
import H2OKit

/// A folder for a conversation's snapshots or archives, which exists as long as this object.
///
/// Both contain the user's conversation. While the device is locked, the files can be written but
/// not opened. Backups do not contain them. They are deleted with the conversation or, if the app
/// ended before that, when the next model is created.
package final class ConversationFolder: Sendable {
    package let url: URL
    /// The descriptor of a lock that the system releases when the process ends.
    private let lock: Int32

    /// - Parameter root: contains only folders of conversations
    /// - Throws: an error of the file system
    package init(in root: URL) throws {
        let url = root.appending(path: UUID().uuidString, directoryHint: .notDirectory)
        try FileManager.default.createPrivateDirectory(at: root)
        try root.excludeFromBackup()
        // So that no other process sees the new folder without its lock.
        let lock = try FileManager.default.whileLocked(root) {
            // Files in the folder inherit its protection.
            try FileManager.default.createPrivateDirectory(at: url)
            return Self.locked(url)
        }
        guard let lock else {
            throw CocoaError(.fileWriteUnknown, userInfo: [NSFilePathErrorKey: url.path])
        }
        (self.url, self.lock) = (url, lock)
    }

    /// Creates a folder with the archives of another conversation, which may be open. Segments
    /// never change, so both conversations share the files if the file system supports links.
    package convenience init(in root: URL, archivesOf other: URL) throws {
        try self.init(in: root)
        try FileManager.default.copyArchives(of: other, to: url)
    }

    deinit {
        close(lock)
        try? FileManager.default.removeItem(at: url)
    }

    /// Deletes the folders of conversations that no process has open.
    package static func deleteStale(in root: URL) {
        let files = FileManager.default
        let names = (try? files.contentsOfDirectory(atPath: root.path(percentEncoded: false))) ?? []
        for name in names where UUID(uuidString: name) != nil {
            let folder = root.appending(path: name, directoryHint: .notDirectory)
            guard files.isFolder(folder),
                let lock = try? files.whileLocked(root, { locked(folder) })
            else { continue }
            try? files.removeItem(at: folder)
            close(lock)
        }
    }

    /// The descriptor of a folder's lock; nil if another object or process has the lock.
    private static func locked(_ folder: URL) -> Int32? {
        let file = folder.appending(path: "lock").path(percentEncoded: false)
        let lock = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        if lock >= 0, flock(lock, LOCK_EX | LOCK_NB) == 0 { return lock }
        if lock >= 0 { close(lock) }
        return nil
    }
}

extension FileManager {
    /// Does `work` while no other thread or process does any in the same folder.
    ///
    /// - Throws: an error of the file system, or of `work`
    func whileLocked<Result>(_ folder: URL, _ work: () throws -> Result) throws -> Result {
        // What is not a folder, such as a pipe, is not opened.
        let path = folder.path(percentEncoded: false)
        let descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else {
            let code = errno == ENOENT ? CocoaError.fileReadNoSuchFile : .fileReadUnknown
            throw CocoaError(code, userInfo: [NSFilePathErrorKey: folder.path])
        }
        defer { close(descriptor) }
        while flock(descriptor, LOCK_EX) != 0 {
            guard errno == EINTR else {
                throw CocoaError(.fileLocking, userInfo: [NSFilePathErrorKey: folder.path])
            }
        }
        return try work()
    }

    /// Whether there is a folder, and not a link to one.
    func isFolder(_ url: URL) -> Bool {
        let attributes = try? attributesOfItem(atPath: url.path(percentEncoded: false))
        return attributes?[.type] as? FileAttributeType == .typeDirectory
    }

    /// Copies the archives of all layers to a folder without archives.
    ///
    /// - Throws: an error of the file system, also if something in the archives is not a file
    func copyArchives(of other: URL, to folder: URL) throws {
        let layers = try contentsOfDirectory(atPath: other.path(percentEncoded: false))
        for layer in layers where layer.hasPrefix("layer-") {
            let (from, to) = (other.appending(path: layer), folder.appending(path: layer))
            guard isFolder(from) else { continue }
            try createPrivateDirectory(at: to)
            let names = try contentsOfDirectory(atPath: from.path(percentEncoded: false))
            for name in names where name.hasSuffix(".safetensors") {
                try linkOrCopyItem(at: from.appending(path: name), to: to.appending(path: name))
            }
            // Copies the manifest last, because it may name only segments that are written.
            if names.contains("manifest") {
                try RegularFile.data(from.appending(path: "manifest"))
                    .write(to: to.appending(path: "manifest"))
            }
        }
    }

    /// Links a file to another name if the file system supports links, and copies it otherwise. Use
    /// this only for files that never change.
    ///
    /// - Throws: an error of the file system, also if it is not a file
    func linkOrCopyItem(at file: URL, to other: URL) throws {
        try RegularFile.check(file)
        do {
            try linkItem(at: file, to: other)
        } catch {
            try copyItem(at: file, to: other)
        }
    }

    /// Creates a folder for a user's conversation, if it does not exist. Other users cannot read it,
    /// and while the device is locked, its files can be written but not opened.
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
