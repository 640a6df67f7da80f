/// A work that an app contains, such as the model or a library, with its license.
public struct H2OAcknowledgement: Sendable, Hashable, Identifiable {
    /// The name of the work.
    public let name: String

    /// The license: an SPDX identifier such as `MIT`, or the license that the model card names.
    /// Empty if no license is named.
    public let license: String

    /// The address of the work's page. Empty if it has none.
    public let source: String

    /// Copyright and license, which the app must show to its users.
    public let text: String

    public var id: Self { self }

    /// - Parameter text: the parts of the text, which are joined with empty lines
    public init(name: String, license: String, source: String, text: [String]) {
        self.name = name
        self.license = license
        self.source = source
        self.text = text.filter { !$0.isEmpty }.joined(separator: "\n\n")
    }
}
