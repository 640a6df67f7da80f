import Foundation
import H2OKit
import MLXLMCommon

/// A conversation's snapshot in a file: its caches in mlx-lm's layout, and in the header what
/// they depend on, the conversation's state and a digest of it all.
///
/// Segments of archives in files stay where they are; the file says up to where they belong
/// to it.
package enum SnapshotFile {
    private static let kind = "h2o-pack conversation"
    private static let version = "2"

    private enum Field: String {
        case kind, version, digest, identity, state
    }

    /// What a file will have. Writing it takes no GPU any more. Only jobs on the model's executor
    /// use it.
    struct Computed: @unchecked Sendable {
        fileprivate let contents: H2OCacheFile.Computed

        /// - Parameter file: its name ends in .safetensors; one that is there is replaced at once
        /// - Throws: an error of writing
        func write(to file: URL) throws {
            try DurableFile.write(to: file, digest: name(.digest)) { try contents.write(to: $0) }
        }
    }

    /// - Parameters:
    ///   - state: that of the caches
    ///   - caches: one for each that the model makes
    ///   - identity: the model, policy and template that the caches depend on
    ///   - details: strings that ``read(_:identity:archive:)`` gives back
    ///   - file: its name ends in .safetensors; one that is there is replaced at once
    /// - Throws: `H2OCacheError.notSavable`, or an error of writing
    package static func write(
        _ state: ConversationState, caches: [any KVCache], identity: ConversationIdentity,
        details: [String: String] = [:], to file: URL
    ) throws {
        try computed(state, caches: caches, identity: identity, details: details).write(to: file)
    }

    /// Computes what ``write(_:caches:identity:details:to:)`` writes.
    ///
    /// - Throws: `H2OCacheError.notSavable`
    static func computed(
        _ state: ConversationState, caches: [any KVCache], identity: ConversationIdentity,
        details: [String: String] = [:]
    ) throws -> Computed {
        var header = details
        header[Field.kind.rawValue] = kind
        header[Field.version.rawValue] = version
        header[Field.digest.rawValue] = DurableFile.placeholder
        header[Field.identity.rawValue] = json(identity)
        header[Field.state.rawValue] = json(state)
        return Computed(contents: try H2OCacheFile.computed(caches, metadata: header))
    }

    /// The strings of a file that belongs to a model, without its caches.
    ///
    /// - Throws: `H2OCacheError` for a file of another kind, version, model, policy or template
    ///   and for a damaged one, or an error of reading
    package static func details(
        of file: URL, identity: ConversationIdentity
    ) throws -> [String: String] {
        let header = try knownHeader(of: file)
        try DurableFile.check(file, digest: name(.digest))
        try check(identity, header, file)
        return Dictionary(
            uniqueKeysWithValues: header.compactMap { key, text in
                key.hasPrefix("0.") ? (String(key.dropFirst(2)), text) : nil
            })
    }

    /// The state in a file that belongs to a model, by its header alone: the rest is not checked.
    ///
    /// - Throws: `H2OCacheError`, or an error of reading
    static func state(
        of file: URL, identity: ConversationIdentity
    ) throws -> ConversationState {
        let header = try knownHeader(of: file)
        try check(identity, header, file)
        return try state(header[name(.state)], file)
    }

    private static func check(
        _ identity: ConversationIdentity, _ header: [String: String], _ file: URL
    ) throws {
        let saved = try H2OCacheError.reading(file) {
            try decode(ConversationIdentity.self, header[name(.identity)])
        }
        try identity.check(saved, in: file)
    }

    private static func state(_ text: String?, _ file: URL) throws -> ConversationState {
        try H2OCacheError.reading(file) { try decode(ConversationState.self, text) }
    }

    /// The header of a file of this kind and version.
    private static func knownHeader(of file: URL) throws -> [String: String] {
        let header = try DurableFile.header(of: file)
        let format = [Field.kind, .version].map { header[name($0)] ?? "" }
        guard format == [kind, version] else {
            throw H2OCacheError.otherFormat(
                found: format.joined(separator: " "), known: ["\(kind) \(version)"], file: file)
        }
        return header
    }

    /// - Parameters:
    ///   - file: what ``write(_:caches:identity:details:to:)`` wrote
    ///   - identity: what the conversation depends on here
    ///   - archive: where its archives in files go on; nil where they are in memory
    /// - Throws: as ``details(of:identity:)``, and `H2OCacheError.archive` where archives are not
    ///   as they were
    package static func read(
        _ file: URL, identity: ConversationIdentity, archive: URL? = nil
    ) throws -> (state: ConversationState, caches: [any KVCache], details: [String: String]) {
        try read(file, details(of: file, identity: identity), identity, archive)
    }

    /// The same of a file whose strings were read.
    static func read(
        _ file: URL, _ details: [String: String], _ identity: ConversationIdentity, _ archive: URL?
    ) throws -> (state: ConversationState, caches: [any KVCache], details: [String: String]) {
        let state = try state(details[Field.state.rawValue], file)
        let caches = try H2OCacheFile.load(from: file, archive: archive).caches
        if let problem = state.problem(vocabulary: identity.vocabulary, caches: caches) {
            throw H2OCacheError.damaged(reason: problem, file: file)
        }
        return (state, caches, details)
    }

    /// As the prompt cache file writes the caller's strings.
    private static func name(_ field: Field) -> String { "0.\(field.rawValue)" }
}

/// A snapshot in a file.
final class StoredSnapshot {
    /// Has the file, which exists as long as this does; nil for a file of somebody else.
    private let folder: SnapshotFolder?
    private let file: URL
    private let archive: ArchiveFolder?
    let byteCount: Int

    init(
        _ contents: SnapshotFile.Computed, _ archive: ArchiveFolder?, in folder: SnapshotFolder,
        name: String
    ) throws {
        self.folder = folder
        self.archive = archive
        file = folder.url.appending(path: name, directoryHint: .notDirectory)
        try contents.write(to: file)
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
