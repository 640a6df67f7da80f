import Foundation
import H2OKit

/// Prompt cache files that are complete or do not exist, and contain their own digest.
enum DurableFile {
    /// The name of the digest among the caller's strings.
    static let field = "digest"
    /// Sixty-four zeros, which are in the place of the digest while it is computed.
    static let placeholder = String(repeating: "0", count: 64)

    /// Writes a new file beside `file` that only its owner can read, replaces ``placeholder`` in
    /// the header with the digest, waits until the file is on the medium, and renames it. If that
    /// fails, the new file is removed, and a file that was there stays.
    ///
    /// - Parameters:
    ///   - file: its name ends in .safetensors; an existing file is replaced atomically
    ///   - write: writes the file at the URL that it receives
    /// - Throws: the error of `write`, `H2OCacheError.damaged` or an error of the file system
    static func write(to file: URL, by write: (URL) throws -> Void) throws {
        let new = unfinished(file)
        let path = new.path(percentEncoded: false)
        let descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else {
            throw RegularFile.failure(.fileWriteUnknown, new, errno)
        }
        close(descriptor)
        do {
            try write(new)  // keeps the file's permissions
            try seal(new)
            // A new file can be written while the device is locked.
            try FileManager.default.setAttributes(
                [.protectionKey: FileProtectionType.completeUnlessOpen], ofItemAtPath: path)
            try rename(new, to: file)
        } catch {
            try? FileManager.default.removeItem(at: new)
            throw error
        }
    }

    /// A new file beside `file`, from which a complete file is renamed.
    static func unfinished(_ file: URL) -> URL {
        let name = file.deletingPathExtension().lastPathComponent
        return file.deletingLastPathComponent().appending(
            path: "\(name).\(UUID().uuidString).new.safetensors", directoryHint: .notDirectory)
    }

    /// Whether a name is that of an ``unfinished(_:)`` file.
    static func isUnfinished(_ name: String, of file: URL) -> Bool {
        let (begin, end) = (
            file.deletingPathExtension().lastPathComponent + ".", ".new.safetensors"
        )
        guard name.hasPrefix(begin), name.hasSuffix(end) else { return false }
        return UUID(uuidString: String(name.dropFirst(begin.count).dropLast(end.count))) != nil
    }

    /// The digest in a file's header.
    ///
    /// - Throws: as ``header(of:)``
    static func digest(of file: URL) throws -> String? { try header(of: file)["0.\(field)"] }

    /// The strings in a file's header.
    ///
    /// - Throws: `H2OCacheError.damaged`, or an error of reading
    static func header(of file: URL) throws -> [String: String] {
        let (data, rest) = try headerData(of: file)
        let members = try? JSONSerialization.jsonObject(with: data) as? [String: Any]
        guard var members else { throw damaged(file) }
        let strings = members.removeValue(forKey: "__metadata__") as? [String: String]
        // The file ends with its last array. It is not read further if it is longer.
        let ends = members.values.map { array in
            ((array as? [String: Any])?["data_offsets"] as? [Int])?.last
        }
        guard ends.allSatisfy({ $0 != nil }), ends.compactMap({ $0 }).max() ?? 0 == rest else {
            throw damaged(file)
        }
        return strings ?? [:]
    }

    /// Compares a file with the digest in its header.
    ///
    /// - Throws: `H2OCacheError.damaged`, or an error of reading
    static func check(_ file: URL) throws {
        let range = try digestRange(in: file)
        guard let digest = try digest(of: file),
            try FileDigest.sha256(of: file, zeroing: range) == digest
        else {
            throw damaged(file)
        }
    }

    private static func damaged(_ file: URL) -> H2OCacheError {
        .damaged(reason: "it was cut short or changed", file: file)
    }

    private static func seal(_ file: URL) throws {
        let range = try digestRange(in: file)
        let digest = try FileDigest.sha256(of: file, zeroing: range)
        let handle = try FileHandle(forUpdating: file)
        defer { try? handle.close() }
        try handle.seek(toOffset: UInt64(range.lowerBound))
        try handle.write(contentsOf: Data(digest.utf8))
        try handle.synchronize()
    }

    private static func rename(_ new: URL, to file: URL) throws {
        let (from, to) = (new.path(percentEncoded: false), file.path(percentEncoded: false))
        guard Foundation.rename(from, to) == 0 else {
            throw RegularFile.failure(.fileWriteUnknown, file, errno)
        }
        // Writes the folder to the medium, because it contains the file's new name.
        let folder = open(file.deletingLastPathComponent().path(percentEncoded: false), O_RDONLY)
        guard folder >= 0 else { return }
        fsync(folder)
        close(folder)
    }

    /// The place of the digest's 64 digits in the file.
    private static func digestRange(in file: URL) throws -> Range<Int> {
        // Quotes inside the header's texts have a backslash, so no text contains this key.
        let key = Data("\"0.\(field)\":\"".utf8)
        guard let match = try headerData(of: file).header.range(of: key) else {
            throw damaged(file)
        }
        let start = 8 + match.upperBound
        return start ..< start + placeholder.count
    }

    /// The header's JSON, which starts at byte 8 and has at most the 100 MiB that the format
    /// allows, and the number of bytes after it.
    private static func headerData(of file: URL) throws -> (header: Data, rest: Int) {
        let handle = try RegularFile.opened(file, most: RegularFile.mostOfCaches)
        defer { try? handle.close() }
        let size = try handle.seekToEnd()
        try handle.seek(toOffset: 0)
        let count = (try handle.read(upToCount: 8) ?? Data()).reversed()
            .reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        guard size >= 8, count <= min(size - 8, 100 << 20),
            let data = try handle.read(upToCount: Int(count)), data.count == Int(count)
        else {
            throw damaged(file)
        }
        return (data, Int(size) - 8 - data.count)
    }
}
