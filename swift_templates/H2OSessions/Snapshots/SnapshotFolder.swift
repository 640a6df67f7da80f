import Foundation
import H2OKit

/// A conversation's folder for snapshots in files, which exists as long as this does.
///
/// Snapshots are the user's conversation: their files can be written but not opened while the
/// device is locked, are in no backup, and go with the conversation or, if the app ended before
/// that, when the next model is loaded.
package final class SnapshotFolder: Sendable {
    package let url: URL
    /// Holds a lock that the system releases when the process ends.
    private let lock: Int32

    /// - Parameter root: has one folder per conversation and nothing else
    /// - Throws: an error of the file system
    package init(in root: URL) throws {
        url = root.appending(path: UUID().uuidString, directoryHint: .notDirectory)
        try FileManager.default.createPrivateDirectory(at: url)
        try root.excludeFromBackup()
        lock = Self.locked(url) ?? -1
        guard lock >= 0 else {
            throw CocoaError(.fileWriteUnknown, userInfo: [NSFilePathErrorKey: url.path])
        }
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
