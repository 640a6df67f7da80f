import Foundation

#if canImport(CryptoKit)
    import CryptoKit
#endif

/// The sha256 of files.
enum FileDigest {
    /// Bytes that are read at a time.
    private static let chunk = 1 << 20

    /// Returns 64 lowercase hexadecimal digits.
    ///
    /// - Throws: an error if the file cannot be read
    static func sha256(of url: URL) throws -> String {
        let file = try FileHandle(forReadingFrom: url)
        defer { try? file.close() }
        var hash = Hash()
        while let data = try file.read(upToCount: chunk), !data.isEmpty {
            hash.update(data: data)
        }
        return hash.finalize().map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    #if canImport(CryptoKit)
        private typealias Hash = SHA256
    #else
        private typealias Hash = PortableSHA256
    #endif
}
