import Foundation
import H2OKit

/// What a conversation's caches depend on, besides its messages. Saved ones go on only where
/// all of it is the same.
package struct ConversationIdentity: Codable, Hashable, Sendable {
    /// The model's name, for people.
    package let model: String
    /// Of the model's files.
    package let modelDigest: String
    /// The policy and storage of the caches, without the conversation's pins and archive.
    package let caches: H2OCaches
    /// Of the tokens that the chat template makes of a made-up exchange.
    package let templateDigest: String

    package init(model: String, modelDigest: String, caches: H2OCaches, templateDigest: String) {
        self.model = model
        self.modelDigest = modelDigest
        self.caches = caches
        self.templateDigest = templateDigest
    }

    /// - Throws: `H2OCacheError` by the name of what differs
    func check(_ saved: ConversationIdentity, in file: URL) throws {
        guard saved.modelDigest == modelDigest else {
            throw H2OCacheError.otherModel(
                found: saved.model, expected: model, file: file)
        }
        guard saved.caches == caches else {
            throw H2OCacheError.otherSettings(
                found: json(saved.caches), expected: json(caches), file: file)
        }
        guard saved.templateDigest == templateDigest else {
            throw H2OCacheError.otherTemplate(file: file)
        }
    }
}
