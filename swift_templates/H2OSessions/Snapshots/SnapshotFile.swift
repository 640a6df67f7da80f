import Foundation
import H2OKit
import MLXLMCommon

/// A conversation's snapshot in a file. The file contains the caches in mlx-lm's layout. Its header
/// contains the values on which the caches depend, the conversation's state, and a digest of the
/// file.
///
/// The file does not contain archives in files; the header says how many of their segments belong
/// to the snapshot.
package enum SnapshotFile {
    private static let kind = "h2o-pack conversation"
    private static let version = "2"

    private enum Field: String {
        case kind, version, digest, identity, state
    }

    /// The computed content of a file. Writing it does not use the GPU. Only jobs on the model's
    /// executor use it.
    package struct Computed: @unchecked Sendable {
        fileprivate let contents: H2OCacheFile.Computed

        /// - Parameter file: its name ends in .safetensors; an existing file is replaced atomically
        /// - Throws: an error of writing
        package func write(to file: URL) throws {
            try DurableFile.write(to: file, digest: name(.digest)) { try contents.write(to: $0) }
        }
    }

    /// Computes the content of a file.
    ///
    /// - Parameters:
    ///   - state: the state that belongs to the caches
    ///   - caches: one cache for each cache of the model
    ///   - identity: the model, policy and template on which the caches depend
    ///   - details: strings that ``read(_:identity:archive:)`` returns
    /// - Throws: `H2OCacheError.notSavable`
    package static func computed(
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

    /// Reads the strings of a file without its caches.
    ///
    /// - Throws: `H2OCacheError` for a file of another kind, version, model, policy or template and
    ///   for a damaged file, or an error of reading
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

    /// Reads the state from the header of a file; does not check the rest of the file.
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

    /// Reads the header of a file, and refuses another kind or version.
    private static func knownHeader(of file: URL) throws -> [String: String] {
        let header = try DurableFile.header(of: file)
        let format = [Field.kind, .version].map { header[name($0)] ?? "" }
        guard format == [kind, version] else {
            throw H2OCacheError.otherFormat(
                found: format.joined(separator: " "), known: ["\(kind) \(version)"], file: file)
        }
        return header
    }

    /// Reads a snapshot.
    ///
    /// - Parameters:
    ///   - file: a file that ``Computed/write(to:)`` wrote
    ///   - identity: the model, policy and template of the conversation that reads the file
    ///   - archive: the folder in which archives in files continue; nil for archives in memory
    /// - Throws: the errors of ``details(of:identity:)``, and `H2OCacheError.archive` if archives
    ///   have changed
    package static func read(
        _ file: URL, identity: ConversationIdentity, archive: URL? = nil
    ) throws -> (state: ConversationState, caches: [any KVCache], details: [String: String]) {
        try read(file, details(of: file, identity: identity), identity, archive)
    }

    /// Reads a snapshot whose strings were already read.
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

    /// The name under which the prompt cache file stores a string of the caller.
    private static func name(_ field: Field) -> String { "0.\(field.rawValue)" }
}

/// A snapshot in a file.
final class StoredSnapshot {
    /// The folder of a file that is deleted with this object; nil for a file of a saved
    /// conversation, which is not deleted.
    private let folder: ConversationFolder?
    private let file: URL
    private let archive: ConversationFolder?
    let byteCount: Int

    init(
        _ contents: SnapshotFile.Computed, _ archive: ConversationFolder?, in folder: ConversationFolder,
        name: String
    ) throws {
        self.folder = folder
        self.archive = archive
        file = folder.url.appending(path: name, directoryHint: .notDirectory)
        try contents.write(to: file)
        byteCount = Self.size(of: file)
    }

    init(_ file: URL, _ archive: ConversationFolder?) {
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
        _ identity: ConversationIdentity, in archives: URL
    ) throws -> ConversationHead {
        let folder = try archive.map {
            try ConversationFolder(in: archives, archivesOf: $0.url)
        }
        let saved = try SnapshotFile.read(file, identity: identity, archive: folder?.url)
        return ConversationHead(state: saved.state, caches: saved.caches, archive: folder)
    }
}
