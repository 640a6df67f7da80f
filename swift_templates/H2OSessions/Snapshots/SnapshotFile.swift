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
    private static let version = "1"

    private enum Field: String {
        case kind, version, digest, identity, state
    }

    /// - Parameters:
    ///   - state: that of the caches
    ///   - caches: one for each that the model makes
    ///   - identity: what they depend on
    ///   - details: strings that ``read(_:identity:archive:)`` gives back
    ///   - file: its name ends in .safetensors; one that is there is replaced at once
    /// - Throws: `H2OCacheError.notSavable`, or an error of writing
    package static func write(
        _ state: ConversationState, caches: [any KVCache], identity: ConversationIdentity,
        details: [String: String] = [:], to file: URL
    ) throws {
        var header = details
        header[Field.kind.rawValue] = kind
        header[Field.version.rawValue] = version
        header[Field.digest.rawValue] = DurableFile.placeholder
        header[Field.identity.rawValue] = json(identity)
        header[Field.state.rawValue] = json(state)
        try DurableFile.write(to: file, digest: name(.digest)) { new in
            try H2OCacheFile.save(caches, to: new, metadata: header)
        }
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
        let found = [Field.kind, .version].map { header[name($0)] ?? "" }
        guard found == [kind, version] else {
            throw H2OCacheError.otherFormat(
                found: found.joined(separator: " "), known: ["\(kind) \(version)"], file: file)
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
        let details = try details(of: file, identity: identity)
        let caches = try H2OCacheFile.load(from: file, archive: archive).caches
        return (try state(details[Field.state.rawValue], file), caches, details)
    }

    /// As the prompt cache file writes the caller's strings.
    private static func name(_ field: Field) -> String { "0.\(field.rawValue)" }
}
