import Foundation
import H2OKit
import MLXLMCommon

/// A conversation's snapshot in a file. The file contains the caches in mlx-lm's layout. Its header
/// contains the values on which the caches depend, the conversation's state, and a digest of the
/// file.
///
/// The file does not contain archives in files; the header says how many of their segments belong
/// to the snapshot.
package struct SnapshotFile {
    private static let kind = "h2o-pack conversation"
    private static let version = "3"

    private enum Field: String {
        case kind, version, identity, state
    }

    let url: URL
    private let vocabulary: Int?
    package let state: ConversationState
    /// The file's strings, among them those that ``computed(_:identity:details:)`` received.
    package let details: [String: String]

    /// Reads the strings of a file without its caches.
    ///
    /// - Parameters:
    ///   - url: a file that ``Computed/write(to:)`` wrote
    ///   - identity: the model, policy and template of the conversation that reads the file
    ///   - checksEveryByte: whether to compare the whole file with its digest
    /// - Throws: `H2OCacheError` for a file of another kind, version, model, policy or template and
    ///   for a damaged file, or an error of reading
    package init(
        _ url: URL, identity: ConversationIdentity, checksEveryByte: Bool = true
    ) throws {
        (self.url, vocabulary) = (url, identity.vocabulary)
        let header = try DurableFile.header(of: url)
        // A prompt cache file has the caller's strings under these names.
        let details = Dictionary(
            uniqueKeysWithValues: header.filter { $0.key.hasPrefix("0.") }
                .map { (String($0.dropFirst(2)), $1) })
        let format = [Field.kind, .version].map { details[$0.rawValue] ?? "" }
        guard format == [Self.kind, Self.version] else {
            throw H2OCacheError.otherFormat(
                found: format.joined(separator: " "), known: ["\(Self.kind) \(Self.version)"],
                file: url)
        }
        if checksEveryByte { try DurableFile.check(url) }
        state = try H2OCacheError.reading(url) {
            let saved = try decode(ConversationIdentity.self, details[Field.identity.rawValue])
            try identity.check(saved, in: url)
            return try decode(ConversationState.self, details[Field.state.rawValue])
        }
        self.details = details
    }

    /// The digest in the file's header.
    var digest: String? { details[DurableFile.field] }

    /// Describes why no conversation can be in the file's state; nil if one can.
    var problem: String? { state.problem(vocabulary: vocabulary, caches: []) }

    /// Describes why the file's conversation cannot have been in an earlier state; nil if it can.
    func problem(of point: ConversationPoint) -> String? {
        point.problem(in: state.steps, tokens: CacheSteps.tokens(vocabulary))
    }

    /// Reads the caches too.
    ///
    /// - Parameter archive: the folder in which archives in files continue; nil for archives in
    ///   memory
    /// - Throws: `H2OCacheError` for caches that do not belong to the state, and
    ///   `H2OCacheError.archive` if archives have changed
    package func head(archive: ConversationFolder? = nil) throws -> ConversationHead {
        let caches = try H2OCacheFile.load(from: url, archive: archive?.url).caches
        if let problem = state.problem(vocabulary: vocabulary, caches: caches) {
            throw H2OCacheError.damaged(reason: problem, file: url)
        }
        return ConversationHead(state: state, caches: caches, archive: archive)
    }

    /// The computed content of a file. Writing it does not use the GPU. Only jobs on the model's
    /// executor use it.
    package struct Computed: @unchecked Sendable {
        fileprivate let contents: H2OCacheFile.Computed

        /// - Parameter file: its name ends in .safetensors; an existing file is replaced atomically
        /// - Throws: an error of writing
        package func write(to file: URL) throws {
            try DurableFile.write(to: file) { try contents.write(to: $0) }
        }
    }

    /// Computes the content of a file.
    ///
    /// - Parameters:
    ///   - head: the state, and one cache for each cache of the model
    ///   - identity: the model, policy and template on which the caches depend
    ///   - details: further strings
    /// - Throws: `H2OCacheError.notSavable`
    package static func computed(
        _ head: ConversationHead, identity: ConversationIdentity, details: [String: String] = [:]
    ) throws -> Computed {
        let header = [
            Field.kind.rawValue: kind, Field.version.rawValue: version,
            Field.identity.rawValue: json(identity), Field.state.rawValue: json(head.state),
            DurableFile.field: DurableFile.placeholder,
        ]
        return Computed(
            contents: try H2OCacheFile.computed(
                head.caches, metadata: header.merging(details) { own, _ in own }))
    }
}

/// A snapshot in a file.
final class StoredSnapshot {
    private let file: URL
    private let archive: ConversationFolder?
    /// The folder of a file that is deleted with this object; nil for a file of a saved
    /// conversation, which is not deleted.
    private let folder: ConversationFolder?
    let byteCount: Int

    init(_ file: URL, _ archive: ConversationFolder?, ownedIn folder: ConversationFolder? = nil) {
        (self.file, self.archive, self.folder) = (file, archive, folder)
        byteCount = (try? file.resourceValues(forKeys: [.fileSizeKey]))?.fileSize ?? 0
    }

    deinit {
        if folder != nil { try? FileManager.default.removeItem(at: file) }
    }

    func head(
        _ identity: ConversationIdentity, in archives: URL
    ) throws -> ConversationHead {
        let folder = try archive.map {
            try ConversationFolder(in: archives, archivesOf: $0.url)
        }
        return try SnapshotFile(file, identity: identity).head(archive: folder)
    }
}
