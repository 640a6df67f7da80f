import Foundation

/// A link in a reply. A model wrote it, and its text may say anything, so a screen shows the address
/// before it opens the link.
public struct ReplyLink: Hashable, Sendable {
    public let url: URL
    /// The name of the server that has the page.
    public let host: String
    /// The whole address, in which characters other than those of ASCII are encoded.
    public let address: String

    /// - Returns: nil if the address is not a page on the web, and must not be opened
    public init?(_ url: URL) {
        guard ["http", "https"].contains(url.scheme?.lowercased()),
            let host = url.host(percentEncoded: true), !host.isEmpty
        else { return nil }
        self.url = url
        self.host = Self.ascii(host)
        address = Self.ascii(url.absoluteString)
    }

    private static func ascii(_ text: String) -> String {
        text.utf8.map { byte in
            0x21 ... 0x7E ~= byte
                ? String(Unicode.Scalar(byte)) : "%" + String(format: "%02X", byte)
        }.joined()
    }
}
