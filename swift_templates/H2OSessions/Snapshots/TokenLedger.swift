import Foundation
import H2OKit

/// Which tokens a cache has read: their number and a digest, so that a ledger of any length
/// takes the same memory.
package struct TokenLedger: Codable, Hashable, Sendable {
    /// Tokens that one step of the digest takes.
    private static let block = 256

    /// Tokens read.
    package private(set) var count = 0
    /// Of whole blocks, each with the digest before it; hexadecimal.
    private var digest = ""
    /// The tokens after the last whole block.
    private var rest = [Int]()

    package init(_ tokens: some Sequence<Int> = [Int]()) {
        append(tokens)
    }

    package mutating func append(_ tokens: some Sequence<Int>) {
        for token in tokens {
            rest.append(token)
            count += 1
            guard rest.count == Self.block else { continue }
            var hash = SHA256Hash()
            hash.update(data: Data(digest.utf8))
            let bytes = rest.flatMap { token in (0 ..< 4).map { UInt8(token >> (8 * $0) & 255) } }
            hash.update(data: Data(bytes))
            (digest, rest) = (hash.hexadecimal, [])
        }
    }

    /// Whether `tokens` begin with those that were read.
    package func begins(_ tokens: [Int]) -> Bool {
        tokens.count >= count && TokenLedger(tokens.prefix(count)) == self
    }
}
