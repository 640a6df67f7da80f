import Foundation

#if canImport(CryptoKit)
    import CryptoKit
#else
    import MLX
#endif

/// Computes the sha256 of files and of bytes.
package enum FileDigest {
    /// Bytes to read at a time.
    private static let chunk = 1 << 20

    /// Returns the sha256 of a file as 64 lowercase hexadecimal digits.
    ///
    /// - Parameter range: bytes to hash as zeros, such as those that hold the digest itself
    /// - Throws: an error if the file cannot be read
    package static func sha256(of url: URL, zeroing range: Range<Int> = 0 ..< 0) throws -> String {
        let file = try RegularFile.opened(url)
        defer { try? file.close() }
        var (hash, offset) = (SHA256Hash(), 0)
        while var data = try file.read(upToCount: chunk), !data.isEmpty {
            let zeros = range.clamped(to: offset ..< offset + data.count)
            for index in zeros { data[data.startIndex + index - offset] = 0 }
            hash.update(data: data)
            offset += data.count
        }
        return hash.hexadecimal
    }

    /// Returns the sha256 of bytes as 64 lowercase hexadecimal digits.
    package static func sha256(of data: Data) -> String {
        var hash = SHA256Hash()
        hash.update(data: data)
        return hash.hexadecimal
    }
}

/// Computes a sha256 of bytes that arrive in parts.
#if canImport(CryptoKit)
    private typealias SHA256Hash = SHA256
#else
    private typealias SHA256Hash = PortableSHA256
#endif

extension SHA256Hash {
    /// The sha256 of all bytes added so far, as 64 lowercase hexadecimal digits.
    fileprivate var hexadecimal: String {
        finalize().map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }
}
