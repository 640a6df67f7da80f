/// A work that an app contains: whom to name for it, and on which terms it is there.
public struct H2OAcknowledgement: Sendable, Hashable, Identifiable {
    /// What it is called.
    public let name: String

    /// Its license, as its makers name it: an SPDX identifier such as `MIT`, or the model
    /// card's word. Empty if they name none.
    public let license: String

    /// The address of its page. Empty if it has none.
    public let source: String

    /// Copyright and license, as they must reach the app's users.
    public let text: String

    public var id: Self { self }

    /// - Parameter text: its parts, between which an empty line stands
    public init(name: String, license: String, source: String, text: [String]) {
        self.name = name
        self.license = license
        self.source = source
        self.text = text.filter { !$0.isEmpty }.joined(separator: "\n\n")
    }
}
