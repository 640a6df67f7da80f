import Foundation

extension URL {
    /// Leaves a folder out of backups.
    ///
    /// - Throws: an error of the file system
    package func excludeFromBackup() throws {
        var (excluded, values) = (self, URLResourceValues())
        values.isExcludedFromBackup = true
        try excluded.setResourceValues(values)
    }
}
