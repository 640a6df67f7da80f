import Foundation

extension ModelFolder {
    /// Finds the folder as ``find()`` does. If there is none, fetches it.
    ///
    /// - Throws: ``H2OLoadingError``
    public static func find(download: ModelDownload) async throws -> URL {
        if let folder = try? find() { return folder }
        return try await download.folder()
    }
}
