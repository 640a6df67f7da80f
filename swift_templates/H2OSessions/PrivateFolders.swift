import Foundation

extension FileManager {
    /// Makes a folder for what belongs to a user's conversation, if it is not there. Others do
    /// not read it, and its files can be written but not opened while the device is locked.
    ///
    /// - Throws: an error of the file system
    func createPrivateDirectory(at url: URL) throws {
        try createDirectory(
            at: url, withIntermediateDirectories: true,
            attributes: [
                .posixPermissions: 0o700, .protectionKey: FileProtectionType.completeUnlessOpen,
            ])
    }
}
