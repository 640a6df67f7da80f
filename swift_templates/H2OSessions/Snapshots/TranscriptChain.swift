import Foundation
import H2OKit

/// Digests of all beginnings of a transcript, so that two transcripts are compared without
/// their texts.
package struct TranscriptChain: Hashable, Sendable {
    /// A transcript's beginning.
    package struct Head: Codable, Hashable, Sendable {
        /// Messages.
        package let count: Int
        /// Of what all messages depend on and of the messages, hexadecimal.
        package let digest: String
    }

    /// Element n is the beginning with n messages.
    package private(set) var heads: [Head]

    /// - Parameters:
    ///   - opening: what all messages depend on: instructions, tools, the template's context
    ///   - messages: in order
    package init(opening: some Encodable, messages: [some Encodable] = [String]()) {
        heads = [Head(count: 0, digest: Self.digest("", opening))]
        for message in messages { append(message) }
    }

    package mutating func append(_ message: some Encodable) {
        heads.append(Head(count: heads.count, digest: Self.digest(head.digest, message)))
    }

    /// The whole transcript.
    package var head: Head { heads[heads.count - 1] }

    package func starts(with other: Head) -> Bool {
        heads.indices.contains(other.count) && heads[other.count] == other
    }

    private static func digest(_ before: String, _ next: some Encodable) -> String {
        var hash = SHA256Hash()
        hash.update(data: Data(before.utf8))
        hash.update(data: Data(json(next).utf8))
        return hash.hexadecimal
    }
}
