import Foundation

/// The model called a tool in a way that cannot be read, so that nobody can call it.
public struct H2OMalformedToolCall: LocalizedError, Hashable, Sendable {
    /// What the model wrote.
    public let text: String

    public var errorDescription: String? {
        "The model called a tool in a way that cannot be read: \(text) Ask again, or describe the "
            + "tool's arguments more simply."
    }
}
