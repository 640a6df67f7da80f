import Foundation

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
