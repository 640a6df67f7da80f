import Foundation

extension ModelFolder {
    /// Finds the folder as ``find()`` does. If there is none, fetches it.
    ///
    /// - Throws: ``ModelDownloadError`` or ``ModelBundleError``
    public static func find(download: ModelDownload) async throws -> URL {
        if let folder = try? find() { return folder }
        return try await download.folder()
    }
}
